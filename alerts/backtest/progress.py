"""How far a backtest is, as its own file says: readable without Spark, by other processes."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

from infra.config.settings import Settings


def backtest_progress(settings: Settings, rule: str, since: datetime) -> float | None:
    """Share of the chunks that are matched, 0 to 100, of the unfinished run of a rule, as it was
    named, that began last; None while there is none."""
    newest: tuple[str, float] | None = None
    # Not by `alerts.backtest.run`, which brings Spark with it.
    for file in (settings.home.absolute() / "backtests").glob("*/run.json"):
        try:
            run = json.loads(file.read_bytes())
            request = (run["rules"], datetime.fromisoformat(run["since"]), run["finished"])
            span = datetime.fromisoformat(run["until"]) - datetime.fromisoformat(run["warm_since"])
            chunks = -(-span // timedelta(seconds=run["chunk_seconds"]))
            share = 100 * len(run["chunks"]) / max(chunks, 1)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue
        if request == ([rule], since, None) and (newest is None or run["began"] > newest[0]):
            newest = run["began"], round(min(share, 100.0), 1)
    return newest[1] if newest else None
