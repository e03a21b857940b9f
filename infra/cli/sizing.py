"""Command `capacity`: how large a plant must be, from what the benchmarks measured."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from infra.config.number_args import whole
from infra.config.settings import Settings
from infra.errors import Usage
from infra.process.table_output import add_output_option, print_rows
from infra.runtime.sizing import Load, measured, sized
from infra.spark.session import project_root

_COLUMNS = ("name", "value", "unit", "formula")


def build(commands: Any) -> None:
    """Register `capacity`."""
    size = commands.add_parser("capacity", help="cores, memory, partitions and disk for a load")
    size.add_argument("--events-per-second", type=_positive, required=True, help="mean of a day")
    size.add_argument(
        "--event-bytes", type=_positive, help="mean raw size (default: that of the measured mix)"
    )
    size.add_argument(
        "--devices", type=whole(0), default=10_000, help="devices with a lease (default: 10000)"
    )
    size.add_argument("--days", type=_positive, default=365, help="kept so long (default: 365)")
    size.add_argument(
        "--busy",
        type=float,
        default=0.5,
        help="share of ingest's cores that the rate takes; the rest catches up (default: 0.5)",
    )
    size.add_argument(
        "--results", type=Path, help="folder of benchmark results (default: those that came along)"
    )
    add_output_option(size)
    size.set_defaults(run=_size)


def _size(arguments: argparse.Namespace, settings: Settings) -> int:
    del settings  # what is asked is not what runs here
    if not 0 < arguments.busy < 1:
        raise Usage(f"--busy {arguments.busy}: between 0 and 1, both left out")
    measured_load = measured(arguments.results or project_root() / "bench" / "results")
    load = Load(
        arguments.events_per_second,
        arguments.event_bytes or measured_load.event_bytes,
        arguments.devices,
        arguments.days,
        arguments.busy,
    )
    rows = [asdict(figure) for figure in sized(load, measured_load)]
    print_rows(rows, arguments.output, _COLUMNS, shown={"value": _short})
    return 0


def _short(value: float) -> str:
    """A number with no more digits than it is good for."""
    return f"{float(f'{value:.4g}'):,g}"


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}': write a number above 0")
    return value
