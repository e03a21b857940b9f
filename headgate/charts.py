"""Charts for notebooks, by Altair: readable without colour, each from a result or its pandas form.

Altair comes with the extra `notebooks` (`pip install headgate[notebooks]`).
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from headgate.result import QueryResult
from headgate.rules import BacktestReport

_LEVELS = ["informational", "low", "medium", "high", "critical"]
_WIDTH = 640


def timeline_chart(items: QueryResult) -> Any:
    """A timeline of `Headgate.timeline`: each kind in a row of its own, by time."""
    # Inside: Altair comes with an extra, and nothing else here needs it.
    import altair

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
    """Who held which address, a lane for each, from rows of `silver.dhcp_session`."""
    import altair

    frame = leases.pandas()[["ip", "mac", "hostname", "lease_start", "lease_end"]]
    span = {"x2": "lease_end:T", "y": altair.Y("ip:N", title="address")}
    start = altair.X("lease_start:T", title="time (UTC)", scale=altair.Scale(type="utc"))
    bars = (
        altair.Chart(frame, width=_WIDTH)
        # Borders and names, since colour alone tells leases apart for some readers only.
        .mark_bar(stroke="black", strokeWidth=0.5)
        .encode(
            x=start,
            color=altair.Color("mac:N", title="device"),
            tooltip=["ip:N", "mac:N", "hostname:N", "lease_start:T", "lease_end:T"],
            **span,
        )
    )
    names = bars.mark_text(align="left", dx=3).encode(text="hostname:N")
    return bars + names


def attack_matrix(techniques: QueryResult) -> Any:
    """ATT&CK techniques by level: darker is more; from rows with technique, level and alerts."""
    import altair

    base = altair.Chart(techniques.pandas(), width=_WIDTH).encode(
        x=altair.X("level:O", sort=_LEVELS), y=altair.Y("technique:N", title=None)
    )
    return base.mark_rect().encode(color=altair.Color("alerts:Q")) + base.mark_text().encode(
        text="alerts:Q"
    )


def change_chart(report: BacktestReport) -> Any:
    """What a backtest gained, lost and kept of the alerts it was compared with, as bars."""
    import altair

    frame = pd.DataFrame(report.change.items(), columns=["change", "alerts"])
    base = altair.Chart(frame, width=_WIDTH).encode(
        y=altair.Y("change:N", sort=["gained", "lost", "same"], title=None), x="alerts:Q"
    )
    return base.mark_bar(stroke="black").encode(color=altair.Color("change:N", legend=None)) + (
        base.mark_text(align="left", dx=3).encode(text="alerts:Q")
    )


def score_chart(hours: QueryResult, threshold: float) -> Any:
    """Scores of judged hours (`ModelBook.judge`) by time, with the line above which one is told."""
    import altair

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
