"""Loading an inventory: what a file says now against what the tables say, and only the difference.

A load that changes nothing writes nothing and starts no JVM, so it can run every few minutes.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from enrich.assets.index_store import newest_index
from enrich.assets.inventory_file import RefusedLine, read_inventory
from enrich.assets.registers import Register, Values
from enrich.assets.scd_diff import Changes, Version, VersionHistory, changes, in_force
from infra.config.settings import Settings
from infra.delta.duckdb_views import definitions, open_engine, refresh
from infra.delta.schema import Table
from infra.errors import Fatal
from infra.process.os_user import acting_user
from infra.storage.paths import is_table
from infra.streaming.outbox import put_row

_FEW = 10
"""So many entries may go at once without being asked for, and beyond them half of all."""

InventoryRow = dict[str, Any]
Write = Callable[[Table, Sequence[InventoryRow], str], None]
"""Appends rows to a table in one commit that carries a note (`Lake.add`)."""


@dataclass(frozen=True)
class Loaded:
    """What a load came to. `held`: entries that are missing but stay, since lines were refused."""

    register: str
    inventory: str
    read: int
    new: int
    changed: int
    gone: int
    unchanged: int
    held: int
    refused: list[RefusedLine]


def load_inventory(
    settings: Settings,
    register: Register,
    where: str,
    write: Write,
    *,
    inventory: str = "default",
    valid_from: datetime | None = None,
    accept_removals: bool = False,
    partial: bool = False,
) -> Loaded:
    """Bring one inventory to what a file or folder lists, true from `valid_from` (now) on.

    Lines that cannot be read are refused and the others count; what the list then does not
    name stays as it is, since one of those lines may have named it; so it does with `partial`,
    when the file names only what is new or other. Raises `Fatal`, and writes
    nothing, when no line can be read, or when most of the inventory would go and
    `accept_removals` is not set.
    """
    loaded_at = datetime.now(UTC)
    listing = read_inventory(where, register)
    if listing.refused and not listing.entries:
        first = listing.refused[0]
        raise Fatal(
            f"{where}: none of {len(listing.refused)} lines can be read; "
            f"{first.file}:{first.line}: {first.reason}"
        )
    valid = valid_from or loaded_at
    with _alone(settings, register):
        history = _history(settings, register, inventory)
        whole = not listing.refused and not partial
        result = changes(history, listing.entries, valid, whole=whole)
        if not accept_removals:
            _refuse_removals(where, register, inventory, result, _present(history, valid))
        # Nothing to write starts no JVM, so a timer may load every few minutes.
        if result.rows:
            rows = [_row(register, inventory, change, loaded_at) for change in result.rows]
            write(register.table, rows, f"load {register.name} {inventory} {loaded_at.isoformat()}")
            newest_index(settings)  # made here, a large one holds up no batch of job `alert`
    named = {entry.id for _, entry in listing.entries}
    done = Loaded(
        register.name,
        inventory,
        len(listing.entries) + len(listing.refused),
        result.new,
        result.changed,
        result.gone,
        result.unchanged,
        len(_present(history, valid) - named) if listing.refused and not partial else 0,
        listing.refused,
    )
    if result.rows or listing.refused:
        _note(settings, done, where, loaded_at)
    return done


def entries_in_force(settings: Settings, register: Register) -> dict[str, dict[str, Values]]:
    """What each inventory lists now, by its name and the entry's id; none without a table."""
    now = datetime.now(UTC)
    listed: dict[str, dict[str, Values]] = {}
    for inventory in _inventories(settings, register):
        history = _history(settings, register, inventory)
        entries = {name: in_force(versions, now) for name, versions in history.items()}
        listed[inventory] = {name: values for name, values in entries.items() if values is not None}
    return listed


def _inventories(settings: Settings, register: Register) -> list[str]:
    rows = _query_rows(settings, register, "SELECT DISTINCT inventory FROM {table} ORDER BY 1", {})
    return [name for (name,) in rows]


def _present(history: VersionHistory, at: datetime) -> set[str]:
    return {name for name, versions in history.items() if in_force(versions, at) is not None}


def _refuse_removals(
    where: str, register: Register, inventory: str, diff: Changes, present: set[str]
) -> None:
    """A list that was cut short must not empty an inventory."""
    # All of a small inventory is within `_FEW`; a list that names none of it was cut short, too.
    if diff.gone and (diff.gone == len(present) or diff.gone > max(_FEW, len(present) // 2)):
        raise Fatal(
            f"{where}: names {len(present) - diff.gone} of the {len(present)} {register.name} "
            f"of inventory '{inventory}'; {diff.gone} would go. If that is meant: "
            "--accept-removals"
        )


def _history(settings: Settings, register: Register, inventory: str) -> VersionHistory:
    """The versions of an inventory's entries, read without Spark; none without a table."""
    columns = (*register.columns, "more")
    rows = _query_rows(
        settings,
        register,
        # Of several versions of one instant the one that was loaded last counts.
        f"SELECT {register.identity}, valid_from, gone, {', '.join(columns)} "
        "FROM {table} WHERE inventory = $inventory "
        f"QUALIFY row_number() OVER (PARTITION BY {register.identity}, valid_from "
        "ORDER BY loaded_at DESC, line DESC) = 1 ORDER BY valid_from",
        {"inventory": inventory},
    )
    history: VersionHistory = {}
    for name, since, gone, *values in rows:
        message = None if gone else dict(zip(columns, values, strict=True))
        history.setdefault(name, []).append(Version(since.astimezone(UTC), message))
    return history


def _query_rows(
    settings: Settings, register: Register, sql: str, values: dict[str, Any]
) -> list[tuple[Any, ...]]:
    """The rows of a question about the register's table; none without a table."""
    table = register.table
    if not is_table(settings.lake_root / table.path):
        return []
    engine = open_engine(memory="1GB", threads=2)
    try:
        tables = [view for view in definitions(settings.lake_root) if view.name == table.name]
        refresh(engine, tables)
        return engine.execute(sql.format(table=table.name), values).fetchall()
    finally:
        engine.close()


def _row(register: Register, inventory: str, change: Any, loaded_at: datetime) -> InventoryRow:
    return {
        "inventory": inventory,
        register.identity: change.id,
        "valid_from": change.version.valid_from,
        "gone": change.version.values is None,
        **(change.version.values or {}),
        "loaded_at": loaded_at,
        "file": change.file,
        "line": change.line,
    }


@contextmanager
def _alone(settings: Settings, register: Register) -> Iterator[None]:
    """One load of a register at a time: two would write the same difference twice."""
    home = settings.home.absolute()
    home.mkdir(parents=True, exist_ok=True)
    # The file stays: were it removed, one process could hold the lock of the file that is gone, and
    # the next that of a new one.
    with (home / f"load-{register.name}.lock").open("w") as file:
        # Waits: the second load then sees what the first wrote, and has less to do.
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _note(settings: Settings, done: Loaded, where: str, at: datetime) -> None:
    """Leave a row for ops.audit."""
    counts = {"new": done.new, "changed": done.changed, "gone": done.gone, "held": done.held}
    put_row(
        settings.home.absolute() / "spool" / "audit",
        f"load-{at:%Y%m%dT%H%M%S%f}",
        {
            "at": at.isoformat(),
            "who": acting_user(),
            "act": f"load.{done.register}",
            "target": done.inventory,
            "detail": json.dumps({"from": where, **counts, "refused": len(done.refused)}),
            "outcome": "ok",
        },
    )
