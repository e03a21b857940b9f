"""The commands `assets import` and `users import`."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from infra.config.settings import Settings
from infra.config.time_args import instant_or_none
from infra.errors import Usage
from infra.process.table_output import add_output_option, print_document, print_rows
from infra.process.text_output import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from enrich.assets.loader import InventoryRow, Loaded
    from infra.delta.schema import Table

_REFUSALS_SHOWN = 20
"""Refused lines that are named one by one on a terminal."""

_COUNTS = ("read", "new", "changed", "gone", "unchanged", "held")


def build_assets(subparsers: Any) -> None:
    """Register `assets`."""
    _build(subparsers, "assets")


def build_users(subparsers: Any) -> None:
    """Register `users`."""
    _build(subparsers, "users")


def _build(subparsers: Any, register: str) -> None:
    commands = subparsers.add_parser(register, help=f"{register} as inventories list them")
    verbs = commands.add_subparsers(dest="verb", required=True)
    load = verbs.add_parser(
        "import",
        help=f"bring the {register} to what an inventory lists",
        description="Read a CSV file with a header, a file of JSON lines, or a folder of them, "
        "and write what has changed. Exit 1 when a line was refused; the others are in.",
    )
    load.add_argument("file", nargs="?", help="file or folder; none: that of the settings")
    load.add_argument("--inventory", default="default", help="which inventory it is (default)")
    load.add_argument(
        "--valid-from", help="since when the list is true, such as 2026-11-20T00:00:00Z (now)"
    )
    load.add_argument(
        "--accept-removals", action="store_true", help="also if most of the inventory would go"
    )
    load.add_argument(
        "--partial", action="store_true", help="the file names what is new or other; nothing goes"
    )
    add_output_option(load)
    load.set_defaults(run=run_load, register=register)


def run_load(args: argparse.Namespace, settings: Settings) -> int:
    """Load, say what changed and name each refused line."""
    # Imported when the command runs: building the parser must stay quick.
    from enrich.assets.loader import load_inventory
    from enrich.assets.registers import REGISTERS

    configured = {"assets": settings.assets, "users": settings.users}[args.register].file
    where = args.file or configured
    if where is None:
        raise Usage(
            f"{args.register} import: name a file, or set {args.register}.file in the settings"
        )
    valid_from = instant_or_none("--valid-from", args.valid_from)
    done = load_inventory(
        settings,
        REGISTERS[args.register],
        str(where),
        lambda table, rows, note: append(settings, table, rows, note),
        inventory=args.inventory,
        valid_from=valid_from,
        accept_removals=args.accept_removals,
        partial=args.partial,
    )
    _show(done, args.output)
    return 1 if done.refused else 0


def append(settings: Settings, table: Table, rows: Sequence[InventoryRow], note: str) -> None:
    """Append rows from a process that has no Spark session yet."""
    from infra.spark.session import session
    from infra.streaming.lake import Lake

    # It only commits: a job's heap beside the jobs would be wasted.
    little = settings.spark.model_copy(update={"driver_memory": "512m", "master": "local[1]"})
    spark = session(
        settings.model_copy(update={"spark": little}), f"headgate import of {table.name}"
    )
    try:
        Lake(spark, settings).ensure(table).add(table, rows, note)
    finally:
        spark.stop()


def _show(done: Loaded, form: str) -> None:
    """Write what a load came to; on a terminal the refused lines go to stderr."""
    as_row = asdict(done)
    if form in ("json", "ndjson"):
        print_document(as_row)
    elif form == "csv":
        row = as_row | {"refused": len(done.refused)}
        print_rows([row], form, ["register", "inventory", *_COUNTS, "refused"])
    else:
        _sentences(done)


def _sentences(done: Loaded) -> None:
    print(
        f"{done.register} of inventory '{printable(done.inventory)}': {done.new} new, "
        f"{done.changed} changed, {done.gone} gone, {done.unchanged} unchanged"
    )
    for refusal in done.refused[:_REFUSALS_SHOWN]:
        print(
            f"{printable(refusal.file)}:{refusal.line}: refused: {printable(refusal.reason)}",
            file=sys.stderr,
        )
    if len(done.refused) > _REFUSALS_SHOWN:
        print(
            f"{len(done.refused) - _REFUSALS_SHOWN} more lines refused (--output json)",
            file=sys.stderr,
        )
    if done.held:
        print(
            f"{done.held} that the list does not name stay, since lines of it were refused",
            file=sys.stderr,
        )
