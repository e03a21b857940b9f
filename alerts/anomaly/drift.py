"""Drift: whether what a model judges still looks like what it learned, said as measured figures.

gold.device_hour has every hour that was judged, with its score. A score says how rare an hour was
among hours of the training: so one in a hundred should reach 2. Where far more do, devices changed,
or the model is old; where none does, it may be blind. Read through DuckDB, without Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from alerts.anomaly.store import AnyModel, StepModel

if TYPE_CHECKING:
    import duckdb


RARE = 2.0
"""Score of one hour in a hundred."""
LEAST_HOURS = 200
"""Of fewer hours nothing is said: two rare ones among them would be chance."""
MOVED, FAR_MOVED = 0.1, 0.25
"""Population stability index from which a feature moved somewhat, and far: the usual marks."""
MANY_RARE = 5.0
"""So many times as often as it should, the rare score comes: the model no longer fits."""
TRAIN_AGAIN = "train again"
"""The state that asks for something to be done."""
MANY_UNSEEN = 0.05
"""Share of judged devices' rarest steps that nobody made in the training."""
_EMPTY = 1e-4
"""Share that an empty bin counts as, since of 0 there is no logarithm."""

_HOURS = """
SELECT entity, epoch(hour)::BIGINT AS hour, max(score) AS score, {sums},
       flatten(list(list_transform(top, x -> x.snippet)) FILTER (top IS NOT NULL)) AS steps
FROM gold.device_hour
WHERE rule_id = $rule AND model = $model AND hour >= $since AND hour < $until
GROUP BY entity, hour ORDER BY entity, hour
"""
_SUMS = ("events", "bytes_out", "bytes_in")


@dataclass(frozen=True)
class Drift:
    """What hours since the training say of a model: `rare` of `hours` reached the score `RARE`.

    `psi`: by feature how far its values moved (0: not at all); empty for a model of before, which
    kept no deciles. `unseen`: for a model of steps, the share of its hours with a step that nobody
    made in the training.
    """

    hours: int
    rare: int
    psi: Mapping[str, float]
    unseen: float | None

    @property
    def state(self) -> str:
        """`too little`, `stable`, `moved` or `TRAIN_AGAIN`."""
        if self.hours < LEAST_HOURS:
            return "too little"
        rare, moved = self.rare / self.hours * 100, max(self.psi.values(), default=0.0)
        if rare >= MANY_RARE or moved >= FAR_MOVED:
            return TRAIN_AGAIN
        return "moved" if moved >= MOVED or (self.unseen or 0.0) >= MANY_UNSEEN else "stable"

    @property
    def sentence(self) -> str:
        """The figures in words."""
        if not self.hours:
            return "no hour judged yet"
        parts = [
            f"{self.rare:,} of {self.hours:,} hours reached score {RARE:g}, "
            f"{self.hours / 100:,.0f} were to be expected"
        ]
        parts += [f"{name} moved by {value:.2f} (PSI)" for name, value in self.psi.items()]
        if self.unseen is not None:
            parts.append(f"{self.unseen:.1%} of hours had steps that the training never saw")
        return "; ".join(parts)


def deciles(values: Sequence[float]) -> tuple[float, ...]:
    """The nine inner bounds of ten equal parts; empty for no values."""
    if not len(values):
        return ()
    return tuple(np.quantile(np.asarray(values, float), np.arange(0.1, 1.0, 0.1)).tolist())


def stability(bounds: Sequence[float], values: Sequence[float]) -> float:
    """The population stability index of values against the deciles of others; 0 of none."""
    if not len(bounds) or not len(values):
        return 0.0
    # Equal bounds make empty bins: what was expected there is their share, not a tenth each.
    edges, repeated = np.unique(np.asarray(bounds), return_counts=True)
    expected = np.append(repeated, 1) / (len(bounds) + 1)
    places = np.searchsorted(edges, np.asarray(values, float), side="left")
    seen = np.bincount(places, minlength=len(edges) + 1) / len(values)
    expected, seen = np.maximum(expected, _EMPTY), np.maximum(seen, _EMPTY)
    return float(np.sum((seen - expected) * np.log(seen / expected)))


def drift_of(
    duck: duckdb.DuckDBPyConnection, model: AnyModel, since: datetime, until: datetime
) -> Drift:
    """What the hours in [since, until) that a model judged say of it.

    `duck` has gold.device_hour.
    """
    sql = _HOURS.format(sums=", ".join(f"sum({name})::DOUBLE AS {name}" for name in _SUMS))
    span = {"rule": model.header.rule_id, "model": model.hash, "since": since, "until": until}
    rows = duck.execute(sql, span).to_arrow_table()
    return drift_of_rows(model, rows.to_pydict())


def drift_of_rows(model: AnyModel, columns: Mapping[str, Sequence[Any]]) -> Drift:
    """The same of hours as columns: score, the sums, steps."""
    scores = columns["score"]
    rare = sum(score >= RARE for score in scores)
    unseen = None
    if isinstance(model, StepModel):
        counts = model.counts
        new = sum(counts.unseen(steps or ()) > 0 for steps in columns["steps"])
        unseen = new / len(scores) if len(scores) else 0.0
    psi = {
        name: stability(bounds, columns[name])
        for name, bounds in model.header.deciles.items()
        if bounds
    }
    return Drift(len(scores), rare, psi, unseen)
