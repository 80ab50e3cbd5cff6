"""The report as texts and tables, and how it gets to the broker.

It is made of the page, without its plots, so that both say the same.
"""

from __future__ import annotations

from contextlib import suppress
from html.parser import HTMLParser
from typing import TYPE_CHECKING

from goqueue.client.http.requests.reports import (
    REPORTS_TOPIC,
    Figure,
    Report,
    ReportTable,
    Section,
    message_of,
)
from goqueue.model.errors import TopicExists

if TYPE_CHECKING:
    from goqueue.client.http import Client

_BLOCKS = frozenset({"h2", "h3", "summary", "p", "th", "td"})


def summary_of(page: str, *, name: str, now_ms: int) -> Report:
    """Return the texts and tables of a page that `report_page` has made."""
    reader = _Reader()
    reader.feed(page.partition("<body>")[2])
    reader.close()
    return Report(name=name, written_at=now_ms, figures=reader.figures, sections=reader.sections)


def publish_report(client: Client, report: Report, *, topic: str = REPORTS_TOPIC) -> None:
    """Publish a report as the newest of its name; the topic is created if it does not exist."""
    message = message_of(report)
    with suppress(TopicExists):
        client.topics.create(topic, partitions=1, settings={"cleanup_policy": "compact"})
    client.publish_many(topic, [message])


class _Reader(HTMLParser):
    """Collects the totals, headings, paragraphs and tables of a page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.figures: list[Figure] = []
        self.sections: list[Section] = []
        self._title = ""  # of the next table
        self._text: list[str] | None = None  # of a block
        self._value: str | None = None  # of a total whose text follows
        self._plots = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "svg":
            self._plots += 1
        elif self._plots:
            return
        elif tag == "table" and self.sections:
            self.sections[-1].tables.append(ReportTable(title=self._title, columns=[], rows=[]))
            self._title = ""
        elif tag == "tr" and self._tables:
            self._tables[-1].rows.append([])
        elif tag in _BLOCKS or tag == "b":
            self._text = []

    def handle_data(self, data: str) -> None:
        if self._value is not None:
            self.figures.append(Figure(value=self._value, text=data))
            self._value = None
        elif self._text is not None and not self._plots:
            self._text.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag == "svg":
            self._plots -= 1
        elif tag == "table" and self._tables:
            table = self._tables[-1]
            table.rows[:] = [row for row in table.rows if row]
        elif self._text is not None and (tag in _BLOCKS or tag == "b"):
            text, self._text = "".join(self._text), None
            self._end_block(tag, text)

    def _end_block(self, tag: str, text: str) -> None:
        if tag == "b":
            self._value = text
        elif tag == "h2":
            self.sections.append(Section(title=text, texts=[], tables=[]))
        elif tag in ("h3", "summary"):
            self._title = text
        elif tag == "p" and self.sections:
            self.sections[-1].texts.append(text)
        elif tag == "th" and self._tables:
            self._tables[-1].columns.append(text)
        elif tag == "td" and self._tables:
            self._tables[-1].rows[-1].append(text)

    @property
    def _tables(self) -> list[ReportTable]:
        return self.sections[-1].tables if self.sections else []
