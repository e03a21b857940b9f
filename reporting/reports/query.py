"""A saved query as a report: its rows over the interval, as its `:since` and `:until` bound it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from reporting.document.content import Column, Kind, Report, Section, Table, Tile, Words
from reporting.document.request import ReportRequest
from reporting.document.saved_query import SavedAnswer, ask_saved_query

NAME = "query"
DOC = "The rows of a saved query; :since and :until in it are the interval."
SUBJECT = "the name of a saved query"
TABLES = ("silver.event",)

_NUMBERS: dict[str, Kind] = {
    "tinyint": "number", "smallint": "number", "int": "number", "bigint": "number",
    "float": "decimal", "double": "decimal",
}  # fmt: skip


def compose(request: ReportRequest) -> Report:
    """The report of an interval."""
    answer = ask_saved_query(request.settings, request.subject, request.interval)
    keys = _keys([name for name, _ in answer.columns])
    table = Table(
        "rows",
        [
            Column(key, name, _kind(spark_type))
            for key, (name, spark_type) in zip(keys, answer.columns, strict=True)
        ],
        [dict(zip(keys, row, strict=True)) for row in answer.rows],
        empty="The query answered without a row.",
    )
    return Report(
        NAME,
        f"Query {request.subject}",
        request.interval,
        request.made_at,
        tiles=[Tile("Rows", len(answer.rows))],
        lead=list(_lead(answer)),
        sections=[
            Section("Rows", [table]),
            Section("The query", [Words([answer.sql])], f"Saved by {answer.who}."),
        ],
        subject=request.subject,
        arrival=replace(request.arrived(), versions=answer.versions or request.versions),
    )


def _lead(answer: SavedAnswer) -> Iterator[str]:
    if answer.doc:
        yield answer.doc
    if answer.truncated_by:
        yield (
            f"CUT: the limit of {answer.truncated_by} ended the answer, so rows are missing at its "
            "end; ask for less, or raise the limits of statements (section api of the settings)."
        )
    if not answer.bounded:
        yield "The query names neither :since nor :until: it is of all time, not of the interval."


def _keys(names: Sequence[str]) -> list[str]:
    """The columns' names; one that stands before already has its place behind it."""
    keys: list[str] = []
    for place, name in enumerate(names, 1):
        keys.append(f"{name}_{place}" if name in keys else name)
    return keys


def _kind(spark_type: str) -> Kind:
    return "decimal" if spark_type.startswith("decimal") else _NUMBERS.get(spark_type, "text")
