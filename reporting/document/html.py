"""A report as one HTML page that needs nothing beside it: no script, no file, no network."""

from __future__ import annotations

from base64 import b64encode
from datetime import datetime
from functools import cache
from typing import Any

import jinja2
from markupsafe import Markup

from alerts.domain.levels import WORST_FIRST
from reporting.document import text
from reporting.document.content import Chart, Column, Raw, Report, Table, Tile, Words
from reporting.document.exports import csv_text

_KIND = {Words: "words", Table: "table", Chart: "chart", Raw: "raw"}
_NUMERIC = ("number", "decimal", "hundredth", "share", "seconds", "bytes")


def to_html(report: Report) -> str:
    """The page. Everything that came from a log is escaped: attackers choose host names."""
    page = _environment().get_template("page.html.j2")
    interval = report.interval

    def clock(at: datetime | None) -> str:
        return f"{interval.local(at):%Y-%m-%d %H:%M:%S}" if at else "-"

    def shown(value: Any, kind: str) -> str:
        return clock(value) if isinstance(value, datetime) else text.shown(value, kind)

    return page.render(
        report=report,
        footer=_for_style(report.title),
        clock=clock,
        shown=shown,
        change=_change,
        kind=lambda block: _KIND[type(block)],
        numeric=_NUMERIC,
        levels=WORST_FIRST,
        csv_link=_csv_link,
    )


def _for_style(title: str) -> Markup:
    """A title for the text of a style sheet, which knows no entities: no mark that could end it."""
    return Markup("".join(c for c in title if c.isalnum() or c in " :,&-"))


def _change(tile: Tile) -> str:
    """What became of a figure since the period before, in words: colour alone tells nothing."""
    if tile.before is None or not isinstance(tile.value, (int, float)):
        return ""
    before = text.shown(tile.before, tile.kind)
    # What differs behind the last digit alone would read as "5.9, down from 5.9".
    if text.shown(tile.value, tile.kind) == before:
        return f"as before ({before})"
    return f"{'up' if tile.value > tile.before else 'down'} from {before}"


def _csv_link(columns: list[Column], rows: list[Any]) -> str:
    """The rows as a link that holds them, so that the page stays one file."""
    return "data:text/csv;base64," + b64encode(csv_text(columns, rows).encode()).decode()


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("reporting", "document"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
