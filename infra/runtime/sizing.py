"""How large a plant must be; docs/explanation/sizing.md shows four.

Two numbers that grow for different reasons are kept apart: cores and state follow the rate and
the keys, the lake follows the volume.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.errors import Usage

_DAY = 86_400
CORES_A_EXECUTOR = 4
HEAP_GB = 2.0
"""Of an executor; its JVM only hands rows to Python."""
DRIVER_GB = 6.0
DEVICES_A_PARTITION = 50_000
"""A choice: stateful jobs have as many tasks as partitions, and their number is fixed for good."""
TABLES = 3
"""A task of ingest writes a file of each: bronze.record, silver.event, gold.finding."""


@dataclass(frozen=True)
class Load:
    """What comes in, and how long it is kept."""

    events_per_second: float
    event_bytes: float
    devices: int
    days: float
    busy: float
    """Share of the cores that the rate takes; what is left works off an outage."""


@dataclass(frozen=True)
class MeasuredLoad:
    """Figures of `bench/results`, each with the file and the name it stands under there."""

    parse: float
    """Events a CPU second, raw to bronze and silver."""
    detect: float
    """Events a CPU second, through a hundred rules."""
    standing: float
    """Cores that the micro-batches of all jobs take however few events come."""
    others: float
    """CPU seconds an event costs beyond reading and detecting it: counts, sessions, maintenance."""
    worker_mb: float
    """The largest Python worker; there is one for each core."""
    bronze: float
    """Bytes on disk for each byte of raw data."""
    silver: float
    event_bytes: float
    """Mean raw size of the events these were measured with."""
    device_bytes: float
    """State for each device that holds a lease."""


@dataclass(frozen=True)
class Figure:
    """One line of the answer: what, how much, and how it comes about."""

    name: str
    value: float
    unit: str
    formula: str


def measured(results: Path) -> MeasuredLoad:
    """Read the figures; raises `Usage` that names what is missing and how to measure it."""
    parse = _value(results, "sources", "mix: ours, from Kafka")
    detect = _value(results, "rules", "job, 100 rules")
    each = _value(results, "standing", "an event more, all jobs") / 1e6
    return MeasuredLoad(
        parse=parse,
        detect=detect,
        standing=_value(results, "standing", "no events, all jobs"),
        # Three figures that were measured apart: their difference may fall below nothing.
        others=max(0.0, each - 1 / parse - 1 / detect),
        worker_mb=_value(results, "sources", "largest Python worker"),
        bronze=_value(results, "footprint", "mix: bronze.record, merged"),
        silver=_value(results, "footprint", "mix: silver.event, merged"),
        event_bytes=_value(results, "footprint", "mix: raw"),
        device_bytes=_value(results, "footprint", "state of job sessions"),
    )


def sized(load: Load, measured: MeasuredLoad) -> list[Figure]:
    """The plant for a load."""
    return [
        *_processing(load, measured),
        *_storage(load, measured),
        Figure(
            "an hour's outage is worked off in",
            round(load.busy / (1 - load.busy), 2),
            "hours",
            f"{load.busy:g} / (1 - {load.busy:g})",
        ),
    ]


def _event_seconds(measured: MeasuredLoad) -> float:
    """CPU time of ingest for an event."""
    return 1 / measured.parse + 1 / measured.detect


def _processing(load: Load, measured: MeasuredLoad) -> list[Figure]:
    """Cores, memory, and in how many parts the data is processed."""
    cores = math.ceil(load.events_per_second * _event_seconds(measured) / load.busy)
    executors = math.ceil(cores / CORES_A_EXECUTOR)
    worker_gb = measured.worker_mb / 1000
    return [
        Figure(
            "cores of ingest",
            cores,
            "cores",
            f"rate x (1/{measured.parse:,.0f} + 1/{measured.detect:,.0f}) / {load.busy:g}, "
            "rounded up",
        ),
        Figure(
            "cores of drivers and the other jobs",
            round(measured.standing + load.events_per_second * measured.others / load.busy, 1),
            "cores",
            f"{measured.standing:.2f} standing + rate x {measured.others * 1e6:.1f} us "
            f"/ {load.busy:g}",
        ),
        Figure("executors of ingest", executors, "", f"cores / {CORES_A_EXECUTOR}, rounded up"),
        Figure(
            "memory of an executor of ingest",
            round(HEAP_GB + CORES_A_EXECUTOR * worker_gb, 1),
            "GB",
            f"{HEAP_GB:g} heap + {CORES_A_EXECUTOR} x {worker_gb:.2f} a Python worker",
        ),
        Figure("memory of a driver", DRIVER_GB, "GB", "4 heap + 2 beside it, as in the forms"),
        Figure(
            "partitions of logs.*, at least",
            cores,
            "",
            "one task reads one partition: as many as cores of ingest, over all topics",
        ),
        Figure(
            "data files of a batch, at most",
            TABLES * cores,
            "",
            f"{TABLES} tables x partitions; maintenance merges them",
        ),
        Figure(
            "spark.shuffle_partitions",
            max(2, 2 ** math.ceil(math.log2(max(1.0, load.devices / DEVICES_A_PARTITION)))),
            "",
            f"devices / {DEVICES_A_PARTITION:,}, up to a power of two, at least 2; no measurement",
        ),
    ]


def _storage(load: Load, measured: MeasuredLoad) -> list[Figure]:
    """State and lake, by day, in all and for each raw TB."""
    raw_a_day = load.events_per_second * load.event_bytes * _DAY
    a_day = raw_a_day * (measured.bronze + measured.silver)
    seconds = _event_seconds(measured) + measured.others
    return [
        Figure(
            "state of sessions",
            round(load.devices * measured.device_bytes / 1e6, 1),
            "MB",
            f"devices x {measured.device_bytes:.0f} bytes",
        ),
        Figure("raw data", round(raw_a_day / 1e9, 1), "GB/day", "rate x bytes x 86,400"),
        Figure(
            "lake, a day",
            round(a_day / 1e9, 1),
            "GB/day",
            f"raw x ({measured.bronze:.2f} bronze + {measured.silver:.2f} silver)",
        ),
        Figure(
            f"lake, {load.days:g} days",
            round(a_day * load.days / 1e12, 2),
            "TB",
            "lake a day x days",
        ),
        Figure(
            "a raw TB takes",
            round(1e12 / load.event_bytes * seconds / load.busy / 3600, 1),
            "core-hours",
            "10^12 / bytes x CPU seconds an event, all jobs / busy share / 3,600",
        ),
        Figure(
            "and leaves in the lake",
            round(measured.bronze + measured.silver, 2),
            "TB",
            "bronze + silver, before retention",
        ),
    ]


def _report(results: Path, name: str) -> dict[str, Any]:
    file = results / f"{name}.json"
    try:
        decoded: dict[str, Any] = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        raise Usage(
            f"{file}: no such results; 'make bench ONLY={name}' in a checkout makes them, "
            "--results FOLDER says where they lie"
        ) from None
    except ValueError as error:
        raise Usage(f"{file}: not the results of a benchmark ({error})") from None
    return decoded


def _value(results: Path, name: str, measure: str) -> float:
    for measure_row in _report(results, name)["measures"]:
        if measure_row["name"] == measure and measure_row["value"] is not None:
            return float(measure_row["value"])
    raise Usage(
        f"{results / name}.json: no measure '{measure}'; 'make bench ONLY={name}' makes it anew"
    )
