"""Ten numbers, from a source that takes filters over; in a module, so that workers can load it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition, LessThan


class Pushing(DataSource):
    @classmethod
    def name(cls) -> str:
        return "pushing"

    def schema(self) -> str:
        return "number int"

    def reader(self, schema: Any) -> PushingReader:
        return PushingReader()


class PushingReader(DataSourceReader):
    def __init__(self) -> None:
        self._end = 10

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        for one in filters:
            if isinstance(one, LessThan):
                self._end = one.value
            else:
                yield one

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(self._end)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        for number in range(partition.value):
            yield (number,)
