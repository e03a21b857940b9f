"""Charts for notebooks, by Altair: readable without colour, each from a result or its pandas form.

Altair comes with the extra `notebooks` (`pip install headgate[notebooks]`).
"""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.util import find_spec
from typing import Any
from uuid import uuid4

import pandas as pd

from headgate.result import QueryResult
from headgate.rules import BacktestReport
from infra.errors import Usage

_LEVELS = ["informational", "low", "medium", "high", "critical"]
_WIDTH = 640
_NO_ROWS = {"domainMax": 1}


def _altair() -> Any:
    """Altair, whose charts bring their own scripts where `vl_convert` is there (the extra has it).

    Else it fetches them from a public server, which many a security team cannot reach.
    """
    # Inside: Altair comes with an extra, and nothing else here needs it.
    import altair

    # Whoever chose a renderer has it kept.
    if altair.renderers.active == "default" and find_spec("vl_convert") is not None:
        altair.renderers.register("headgate", _offline)
        altair.renderers.enable("headgate")
    return altair


def _offline(chart: dict[str, Any], **_: Any) -> dict[str, str]:
    """What a notebook shows of a chart: HTML that needs no server.

    Not Altair's own `inline` template: a notebook puts all outputs into one page, where its second
    chart is refused (names declared twice), and what a log says could end its script.
    """
    place = f"headgate-chart-{uuid4().hex}"
    # JSON knows escapes of letters, and HTML looks for no end of a script behind them.
    spec = json.dumps(chart).replace("<", "\\u003c")
    # The bundle's own names stay within a function, and it is read once a page.
    html = (
        f'<div id="{place}"></div>\n<script>\n'
        "if (!window.headgateEmbed) {\n"
        f"(function () {{\n{_bundle()}\n}})();\n"
        "}\n"
        f'window.headgateEmbed("#{place}", {spec}, {{mode: "vega-lite"}}).catch(console.error);\n'
        "</script>\n"
    )
    return {"text/html": html, "text/plain": "a chart"}


@cache
def _bundle() -> str:
    """Vega's scripts of the version for which Altair writes charts."""
    import altair
    import vl_convert

    version = ".".join(altair.SCHEMA_VERSION.split(".")[:2])
    scripts: str = vl_convert.javascript_bundle("window.headgateEmbed = vegaEmbed;", version)
    return scripts


def timeline_chart(items: QueryResult) -> Any:
    """A timeline of `Headgate.timeline`: each kind in a row of its own, by time."""
    altair = _altair()

    frame = items.pandas()[["time", "kind", "title", "ip"]]
    return (
        altair.Chart(frame, width=_WIDTH)
        .mark_tick(thickness=2)
        .encode(
            # Without a UTC scale the browser draws in the reader's own zone, beside text in UTC.
            x=altair.X("time:T", title="time (UTC)", scale=altair.Scale(type="utc")),
            y=altair.Y("kind:N", title=None),
            color=altair.Color("kind:N", legend=None),
            tooltip=["time:T", "kind:N", "title:N", "ip:N"],
        )
    )


def lease_lanes(leases: QueryResult) -> Any:
    """Who held which address, from rows of `silver.dhcp_session`: a part for each address, in it
    a lane for each device, the first holder on top."""
    altair = _altair()

    frame = leases.pandas()[["ip", "mac", "hostname", "lease_start", "lease_end"]]
    # The name beside the lane: in a short lease it would not fit, and colour alone tells leases
    # apart for some readers only.
    frame["device"] = frame.hostname.fillna("").str.cat(frame.mac, sep=" ").str.strip()
    first = altair.EncodingSortField("lease_start", op="min")
    lanes = (
        altair.Chart(frame, width=_WIDTH, height=altair.Step(18))
        .mark_bar(stroke="black", strokeWidth=0.5)
        .encode(
            x=altair.X("lease_start:T", title="time (UTC)", scale=altair.Scale(type="utc")),
            x2="lease_end:T",
            y=altair.Y("device:N", title=None, sort=first, axis=altair.Axis(labelLimit=260)),
            color=altair.Color("mac:N", legend=None),
            tooltip=["ip:N", "mac:N", "hostname:N", "lease_start:T", "lease_end:T"],
        )
    )
    return lanes.facet(row=altair.Row("ip:N", title=None)).resolve_scale(y="independent")


def attack_matrix(techniques: QueryResult) -> Any:
    """ATT&CK techniques by level: darker is more; from rows with technique, level and alerts."""
    altair = _altair()

    base = altair.Chart(techniques.pandas(), width=_WIDTH).encode(
        x=altair.X("level:O", sort=_LEVELS), y=altair.Y("technique:N", title=None)
    )
    return base.mark_rect().encode(color=altair.Color("alerts:Q")) + base.mark_text().encode(
        text="alerts:Q"
    )


def change_chart(report: BacktestReport) -> Any:
    """What a backtest gained, lost and kept of the alerts it was compared with, as bars."""
    altair = _altair()

    frame = pd.DataFrame(report.change.items(), columns=["change", "alerts"])
    base = altair.Chart(frame, width=_WIDTH).encode(
        y=altair.Y("change:N", sort=["gained", "lost", "same"], title=None), x="alerts:Q"
    )
    return base.mark_bar(stroke="black").encode(color=altair.Color("change:N", legend=None)) + (
        base.mark_text(align="left", dx=3).encode(text="alerts:Q")
    )


def score_chart(hours: QueryResult, threshold: float) -> Any:
    """Scores of judged hours (`ModelBook.judge`) by time, with the line above which one is told."""
    altair = _altair()

    frame = hours.pandas()[["hour", "device", "score", "told", "what"]]
    points = (
        altair.Chart(frame, width=_WIDTH)
        .mark_point(filled=True, size=60)
        .encode(
            x=altair.X("hour:T", title="time (UTC)", scale=altair.Scale(type="utc")),
            y=altair.Y("score:Q", title="score"),
            # The form as well: what is told must stand out without colour.
            shape=altair.Shape("told:N", title="told"),
            color=altair.Color("told:N", title="told"),
            tooltip=["hour:T", "device:N", "score:Q", "what:N"],
        )
    )
    line = altair.Chart(pd.DataFrame({"score": [threshold]})).mark_rule(strokeDash=[4, 4])
    return points + line.encode(y="score:Q")


def rarity_chart(values: QueryResult, value: str, count: str, *, most: int = 30) -> Any:
    """How rare values are, the rarest first: a bar each, on a logarithmic scale, with its number.

    `value` and `count` name columns; `count` holds whole numbers from 1, such as devices or days.
    Beyond the `most` rarest none is drawn, and the title says of how many. Raises `Usage` for a
    column that is not there.
    """
    altair = _altair()

    frame = _columns(values, value, count)
    frame = frame[frame[count] >= 1].sort_values([count, value])
    shown = frame.head(most)
    title = f"the {len(shown)} rarest of {len(frame)}"
    base = altair.Chart(shown, width=_WIDTH, title=title).encode(
        # As sorted here: among equal counts Vega would order by what comes first in the data.
        y=altair.Y(f"{_field(value)}:N", sort=list(shown[value]), title=value),
        # From below 1, since a bar from 1 to 1 has no length, and what came once is the point.
        # Of no rows a logarithmic scale would make no chart at all, and the title goes unseen.
        x=altair.X(
            f"{_field(count)}:Q",
            title=count,
            scale=altair.Scale(type="log", domainMin=0.5, **({} if len(shown) else _NO_ROWS)),
        ),
        tooltip=[f"{_field(value)}:N", f"{_field(count)}:Q"],
    )
    bars = base.mark_bar(stroke="black").encode(x2=altair.datum(0.5))
    return bars + base.mark_text(align="left", dx=3).encode(text=f"{_field(count)}:Q")


def periodicity_chart(
    gaps: QueryResult, by: str, *, time: str = "time", gap: str = "gap", most: int = 6
) -> Any:
    """How even the gaps between events are: a row of dots for each value of `by`.

    Each dot is an event at its `time`, as high as the seconds since the one before (`gap`): what
    goes by the clock lies on a line, the dashed one at its median, and people scatter. At most
    `most` values are drawn, those whose gaps lie closest to their median. Raises `Usage` for a
    column that is not there.
    """
    altair = _altair()

    frame = _columns(gaps, by, time, gap).dropna()
    median = frame.groupby(by)[gap].transform("median")
    frame = frame.assign(median=median, off=(frame[gap] - median).abs() / median.clip(lower=1))
    order = frame.groupby(by)["off"].median().sort_values(kind="stable").head(most).index
    shown = frame[frame[by].isin(order)].drop(columns="off")
    seconds = altair.Y(f"{_field(gap)}:Q", title="gap (s)", scale=altair.Scale(type="symlog"))
    base = altair.Chart(width=_WIDTH, height=70)
    dots = base.mark_point(filled=True, size=25, color="black").encode(
        x=altair.X(f"{_field(time)}:T", title="time (UTC)", scale=altair.Scale(type="utc")),
        y=seconds,
        tooltip=[f"{_field(time)}:T", f"{_field(gap)}:Q"],
    )
    line = base.mark_rule(strokeDash=[4, 4]).encode(y="median(median):Q")
    header = altair.Header(labelAnchor="start", labelOrient="top")
    row = altair.Row(f"{_field(by)}:N", sort=list(order), title=None, header=header)
    return altair.layer(line, dots, data=shown).facet(row=row).resolve_scale(y="independent")


def _columns(result: QueryResult, *names: str) -> pd.DataFrame:
    lacking = [name for name in names if name not in result.columns]
    if lacking:
        raise Usage(f"no column {', '.join(lacking)}; there are {', '.join(result.columns)}")
    return result.pandas()[list(names)]


def _field(name: str) -> str:
    """A column's name as Vega reads it: dots, brackets and colons would be its own syntax."""
    return re.sub(r"([.\[\]:\\])", r"\\\1", name)
