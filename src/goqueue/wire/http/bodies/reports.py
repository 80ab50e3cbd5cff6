"""Reports of jobs: summaries that a job publishes to a topic, so that people find them there.

They are JSON, by the name of the report as the key. The topic is an ordinary one that is compacted,
so that it keeps the newest of each name; who may read it may read the reports.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from goqueue.wire.carrier.bodies import Answer, Body
from goqueue.wire.http.fields import Limit, ListCursor, Match

REPORTS_TOPIC = "goqueue.reports"
NAME_LENGTH_MAX = 200
REPORT_BYTES_MAX = 512 << 10

Text = Annotated[str, Meta(max_length=10_000)]
Name = Annotated[str, Meta(min_length=1, max_length=NAME_LENGTH_MAX)]


class Figure(Answer, kw_only=True):
    """A total of the whole report."""

    value: Text
    text: Text


class ReportTable(Answer, kw_only=True):
    title: Text = ""
    columns: Annotated[list[Text], Meta(max_length=50)]
    rows: Annotated[list[Annotated[list[Text], Meta(max_length=50)]], Meta(max_length=1000)]


class Section(Answer, kw_only=True):
    title: Text
    texts: Annotated[list[Text], Meta(max_length=1000)] = []
    tables: Annotated[list[ReportTable], Meta(max_length=1000)] = []


class Report(Answer, kw_only=True):
    """What a job has found, as texts and tables."""

    name: Name
    written_at: Annotated[int, Meta(ge=0)]
    figures: Annotated[list[Figure], Meta(max_length=100)] = []
    sections: Annotated[list[Section], Meta(max_length=1000)] = []


class ListReports(Body, kw_only=True):
    match: Match = ""
    limit: Limit = 100
    cursor: ListCursor = ""


class ReportEntry(Answer, kw_only=True):
    """A report without its sections."""

    name: str
    written_at: int
    figures: Annotated[list[Figure], Meta(description="Totals of the whole report.")]


class Reports(Answer, kw_only=True):
    """The newest report of each name, the newest first; `cursor` is empty at the end."""

    reports: list[ReportEntry]
    cursor: str
    total: int
    unreadable: Annotated[int, Meta(description="Records of the topic that are no reports.")]
    is_complete: Annotated[
        bool, Meta(description="False if the topic has more than was read; older ones are shown.")
    ]


encode_report = msgspec.json.Encoder().encode
decode_report = msgspec.json.Decoder(Report).decode  # raises msgspec.MsgspecError
