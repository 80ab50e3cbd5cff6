"""The committed files of the console: built from these sources, small, and complete."""

from __future__ import annotations

import gzip
import hashlib
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
SOURCES = ROOT / "console"
BUILT = ROOT / "src" / "goqueue" / "console" / "static"
DOWNLOAD_BYTES_MAX = 150 * 1024
OTHER_SOURCES = ("build.mjs", "package.json", "package-lock.json", "tsconfig.json")


def digest_of_sources() -> str:
    files = [file for file in (SOURCES / "src").rglob("*") if file.is_file()]
    files += [SOURCES / name for name in OTHER_SOURCES]
    digest = hashlib.sha256()
    for name, file in sorted((file.relative_to(SOURCES).as_posix(), file) for file in files):
        content = file.read_bytes()
        digest.update(f"{name}\n{len(content)}\n".encode() + content)
    return digest.hexdigest()


def test_the_console_was_built_after_the_last_change_of_its_sources() -> None:
    written = (BUILT / "sources.sha256").read_text().strip()
    assert written == digest_of_sources(), "console/ has changed: run `make console`"


def test_the_whole_console_is_a_small_download() -> None:
    packed = [file.stat().st_size for file in BUILT.glob("*.gz")]
    assert 0 < sum(packed) <= DOWNLOAD_BYTES_MAX


def test_each_file_has_a_compressed_copy_of_the_same_content() -> None:
    files = [file for file in BUILT.iterdir() if file.suffix not in (".gz", ".sha256")]
    assert len(files) >= 5
    for file in files:
        packed = file.with_name(f"{file.name}.gz")
        assert gzip.decompress(packed.read_bytes()) == file.read_bytes(), file.name


def test_the_start_page_names_files_that_exist_and_no_foreign_ones() -> None:
    page = (BUILT / "index.html").read_text()
    addresses = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert len(addresses) == 3
    for address in addresses:
        assert address.startswith("/console/")
        assert (BUILT / address.removeprefix("/console/")).is_file(), address


def test_names_contain_the_hash_of_the_content() -> None:
    for file in BUILT.iterdir():
        if file.suffix in (".js", ".css", ".svg"):
            digest = hashlib.sha256(file.read_bytes()).hexdigest()
            assert file.stem.endswith(f"-{digest[:12]}"), file.name
