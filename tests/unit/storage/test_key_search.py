"""Searching segments: what is found, what filters skip, and filters that no longer fit."""

from __future__ import annotations

import pytest

from goqueue.model.batch import Record
from goqueue.model.compression import Compression
from goqueue.model.scanning import Wanted
from goqueue.storage.damage import Place
from goqueue.storage.disk import Disk
from goqueue.storage.key_search import Part, SegmentSearch
from goqueue.storage.log import Log, LogSettings
from goqueue.storage.segment import Segment
from tests.simulation.disk import SimulatedDisk
from tests.unit.storage.logs import FOLDER, append, append_numbered, open_log, sync

SETTINGS = LogSettings(segment_bytes=20_000, index_interval_bytes=256)
BLOCK_BYTES = 2000
EVERYTHING: Wanted = (None, None, None, None, None)


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


def key(number: int) -> Wanted:
    return (b"k%d" % number, None, None, None, None)


class Searched:
    """What a search of a whole segment found and read."""

    def __init__(self, disk: Disk, log: Log, segment: Segment, wanted: Wanted) -> None:
        self.offsets: list[int] = []
        self.read_bytes = self.skipped_bytes = 0
        part = Part(Place(0, segment.base_offset), Place(segment.size, segment.end_offset))
        search = SegmentSearch(
            disk, FOLDER, segment, part, wanted, builds=True, block_bytes=BLOCK_BYTES
        )
        while not search.is_done:
            found = search.step(bytes_max=BLOCK_BYTES, offsets_max=1000)
            search.keep(found)
            self.offsets += found.offsets
            self.read_bytes += found.read_bytes
            self.skipped_bytes += found.skipped_bytes
            if found.damaged is not None:
                error = segment.corrupt(found.damaged)
                resume = segment.damages[error.position].resume
                assert resume is not None
                search.resume(resume)
        search.close()


def sealed_log(disk: Disk) -> tuple[Log, Segment]:
    log = open_log(disk, SETTINGS)
    append_numbered(log, 200, records=2)
    sync(log)
    assert log.segments[0].is_sealed
    return log, log.segments[0]


def test_records_are_found_by_key(disk: SimulatedDisk) -> None:
    log, segment = sealed_log(disk)
    assert Searched(disk, log, segment, key(33)).offsets == [33]
    assert Searched(disk, log, segment, key(10_000)).offsets == []
    everything = Searched(disk, log, segment, EVERYTHING).offsets
    assert everything == list(range(segment.end_offset))


def test_a_second_search_reads_only_what_the_filters_allow(disk: SimulatedDisk) -> None:
    log, segment = sealed_log(disk)
    first = Searched(disk, log, segment, key(33))
    second = Searched(disk, log, segment, key(33))
    assert (first.read_bytes, first.skipped_bytes) == (segment.size, 0)
    assert second.offsets == [33]
    assert second.read_bytes < segment.size // 2
    assert second.read_bytes + second.skipped_bytes == segment.size


def test_the_filters_of_a_growing_segment_are_continued(disk: SimulatedDisk) -> None:
    log = open_log(disk, LogSettings(segment_bytes=1 << 20))
    for count in (60, 60):
        append_numbered(log, count, records=2)
        Searched(disk, log, log.active, key(1))
    found = Searched(disk, log, log.active, key(200))
    assert found.offsets == [200]
    assert found.read_bytes < log.active.size // 2


def test_a_truncated_segment_loses_its_filters(disk: SimulatedDisk) -> None:
    log = open_log(disk, LogSettings(segment_bytes=1 << 20))
    append_numbered(log, 100, records=2)
    Searched(disk, log, log.active, key(1))
    log.truncate(100)
    append(log, [Record(b"other%d" % number, b"x" * 20) for number in range(300)])
    wanted = (b"other7", None, None, None, None)
    assert Searched(disk, log, log.active, wanted).offsets == [107]


def test_filters_of_an_earlier_content_are_recognised(disk: SimulatedDisk) -> None:
    log = open_log(disk, LogSettings(segment_bytes=1 << 20))
    append_numbered(log, 100, records=2)
    Searched(disk, log, log.active, key(1))
    [path] = [name for name in disk.list(FOLDER) if name.endswith(".keys")]
    stale = disk.read_whole(f"{FOLDER}/{path}")
    log.truncate(0)
    append(log, [Record(b"other%d" % number, b"x" * 20) for number in range(300)])
    disk.replace_whole(f"{FOLDER}/{path}", stale)
    wanted = (b"other7", None, None, None, None)
    assert Searched(disk, log, log.active, wanted).offsets == [7]


@pytest.mark.parametrize("at", [0, 9, 100, 300])
def test_damaged_filters_are_built_again(disk: SimulatedDisk, at: int) -> None:
    log, segment = sealed_log(disk)
    Searched(disk, log, segment, key(1))
    [path] = [name for name in disk.list(FOLDER) if name.endswith(".keys")]
    whole = disk.read_whole(f"{FOLDER}/{path}")
    damaged = bytearray(whole)
    damaged[at] ^= 1
    disk.replace_whole(f"{FOLDER}/{path}", bytes(damaged))
    for number in range(0, segment.end_offset, 7):
        assert Searched(disk, log, segment, key(number)).offsets == [number]
    assert disk.read_whole(f"{FOLDER}/{path}") == whole


def test_filters_go_with_their_segment(disk: SimulatedDisk) -> None:
    log, segment = sealed_log(disk)
    Searched(disk, log, segment, key(1))
    for one in log.take_segments(1):
        one.remove()
    assert not [name for name in disk.list(FOLDER) if name.endswith(".keys")]


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.ZSTD])
def test_compressed_batches_are_searched_and_filtered(
    disk: SimulatedDisk, codec: Compression
) -> None:
    log = open_log(disk, LogSettings(segment_bytes=1 << 20))
    for number in range(100):
        records = [Record(b"k%d" % (2 * number + one), b"v" * 50) for one in range(2)]
        append(log, records, codec=codec if number % 3 else Compression.NONE)
    for _ in range(2):
        assert Searched(disk, log, log.active, key(33)).offsets == [33]
        assert Searched(disk, log, log.active, key(36)).offsets == [36]


def test_damage_is_stepped_over(disk: SimulatedDisk) -> None:
    log = open_log(disk, LogSettings(segment_bytes=1 << 20))
    batches = append_numbered(log, 100, records=2)
    position = len(b"".join(batches[:50]))
    log.active.file.overwrite(position + 16, b"\x07")
    found = Searched(disk, log, log.active, EVERYTHING).offsets
    assert found == [*range(100), *range(102, 200)]
    assert Searched(disk, log, log.active, key(150)).offsets == [150]
