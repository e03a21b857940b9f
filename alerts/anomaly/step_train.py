"""Training of a model of steps: history -> what devices of a group do, and how rare the rest is.

Spark counts on how many days each device made each step; MLlib groups devices that run the same
programs (CountVectorizer, IDF, then as `alerts.anomaly.train` does: KMeans, by silhouette). The
last quarter of the history is held back: counts of the first part say how far its hours stray.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from typing import NamedTuple

import pyarrow as pa
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.feature import IDF, CountVectorizer, Normalizer
from pyspark.ml.functions import vector_to_array
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from alerts.anomaly.baseline import HOUR_SECONDS
from alerts.anomaly.steps import HeldHours, SeenStep, StepCounts, held_hours

HELD = 0.25
"""Share of the history that is held back to ask how rare strays are."""
_DAY = 86_400
_WORDS = 256
"""Steps by which devices are compared: those that most devices have."""


class LearnedSteps(NamedTuple):
    """Rows for the model, and the hours that were held back."""

    rows: list[SeenStep]
    held: HeldHours


def program_shapes(by_step: DataFrame) -> DataFrame:
    """Steps of devices by hour -> devices with `shape`, which says what programs they run."""
    lists = by_step.groupBy("entity").agg(F.sort_array(F.collect_set("step")).alias("words"))
    # Of a step that nobody else has nothing is told about who is alike.
    count = CountVectorizer(inputCol="words", outputCol="counts", vocabSize=_WORDS, minDF=2.0)
    weigh = IDF(inputCol="counts", outputCol="weighed")
    even = Normalizer(inputCol="weighed", outputCol="even")
    fitted: PipelineModel = Pipeline(stages=[count, weigh, even]).fit(lists)
    return fitted.transform(lists).select("entity", vector_to_array(F.col("even")).alias("shape"))


def step_days(by_step: DataFrame, since: datetime, until: datetime) -> pa.Table:
    """Steps of devices by hour -> a row for each device and step: days and early days on which it
    was seen, and the hours of it that are held back."""
    cut = held_from(since, until)
    day = F.floor(F.col("hour") / F.lit(_DAY))
    early = F.col("hour") < F.lit(cut)
    return (
        by_step.groupBy("entity", "step")
        .agg(
            F.collect_set(day).alias("days"),
            F.collect_set(F.when(early, day)).alias("early_days"),
            F.collect_set(F.when(~early, F.col("hour"))).alias("held_hours"),
        )
        .toArrow()
        .sort_by([("entity", "ascending"), ("step", "ascending")])
    )


def held_from(since: datetime, until: datetime) -> int:
    """Where the held-back part begins, a full hour in seconds since 1970."""
    first, last = int(since.timestamp()), int(until.timestamp())
    return int(last - (last - first) * HELD) // HOUR_SECONDS * HOUR_SECONDS


def learned_steps(rows: pa.Table, groups: dict[str, int]) -> LearnedSteps:
    """What `step_days` gave, for the devices in `groups` (their group's number)."""
    days: dict[str, set[int]] = defaultdict(set)
    early_days: dict[str, set[int]] = defaultdict(set)
    later: dict[str, dict[str, list[int]]] = defaultdict(dict)
    active: dict[str, set[int]] = defaultdict(set)
    every = [row for row in rows.to_pylist() if row["entity"] in groups]
    for row in every:
        name = row["entity"]
        days[name].update(row["days"])
        early_days[name].update(row["early_days"])
        active[name].update(row["held_hours"])
        later[name][row["step"]] = row["held_hours"]

    def seen(column: str, of: dict[str, set[int]]) -> list[SeenStep]:
        return [
            SeenStep(row["entity"], groups[row["entity"]], len(of[row["entity"]]), row["step"],
                     len(row[column]))
            for row in every if row[column]
        ]  # fmt: skip

    hours_of = {name: len(hours) for name, hours in active.items()}
    early = StepCounts(seen("early_days", early_days))
    # Of a device that is new in the held part its group's counts know nothing of its own.
    known_devices = {name: steps for name, steps in later.items() if name in early.devices}
    return LearnedSteps(seen("days", days), held_hours(early, known_devices, hours_of))
