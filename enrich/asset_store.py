"""The index that belongs to a version of the tables, kept beside them so that workers reach it.

A batch decides on the newest versions when it first runs and names them again when it is retried:
so it reads what it read before, and an inventory that was loaded meanwhile counts from the next.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from enrich.asset_index import build
from enrich.asset_tables import ASSET_VERSION, USER_VERSION
from infra.commits import newest_version
from infra.duck import definitions, open_engine, refresh
from infra.errors import Retryable
from infra.lake import Lake
from infra.location import Location
from infra.parquet import arrow_schema
from infra.settings import Settings
from infra.tables import Table

KEPT = 20
"""Newest index files that stay; an older one is made again from its versions if it is asked for."""


def newest(lake: Lake) -> str | None:
    """The newest versions of both tables as one name; None while nothing was ever loaded."""
    return _newest(lake.settings.lake_root)


def _newest(lake_root: Location) -> str | None:
    versions = [
        max(0, newest_version(lake_root / table.path)) for table in (ASSET_VERSION, USER_VERSION)
    ]
    return "-".join(str(version) for version in versions) if any(versions) else None


def index_file(lake: Lake, name: str | None) -> str | None:
    """The index of the versions that `newest` named, made if it is not there; None for None."""
    if name is None:
        return None
    file = index_path(lake.settings, name)
    if not file.exists():
        assets, users = (int(version) for version in name.split("-"))
        lake.ensure(ASSET_VERSION, USER_VERSION)
        _make(
            file,
            lake.read(ASSET_VERSION, assets).toArrow(),
            lake.read(USER_VERSION, users).toArrow(),
        )
    return str(file)


def newest_index(settings: Settings) -> str | None:
    """The index of the newest versions, for a process without Spark; None if nothing was loaded.

    Raises `Retryable` when the tables change faster than they can be read.
    """
    for _ in range(5):
        name = _newest(settings.lake_root)
        if name is None:
            return None
        file = index_path(settings, name)
        if file.exists():
            return str(file)
        read = [_read(settings, table) for table in (ASSET_VERSION, USER_VERSION)]
        if _newest(settings.lake_root) == name:
            _make(file, *read)
            return str(file)
    raise Retryable("the inventories are being loaded; ask again")


def _read(settings: Settings, table: Table) -> pa.Table:
    """All rows of a table; none where it was not made yet."""
    engine = open_engine(memory="1GB", threads=2)
    try:
        wanted = [one for one in definitions(settings.lake_root) if one.name == table.name]
        if refresh(engine, wanted):
            return arrow_schema(table).empty_table()
        found = engine.execute(f"SELECT * FROM {table.name}").to_arrow_table()
        return found.cast(arrow_schema(table))
    finally:
        engine.close()


def index_path(settings: Settings, name: str) -> Path:
    """Where the index of the versions that `newest` named lies, once it is made."""
    return settings.lake_side / "_inventory" / f"{name}.sqlite"


def _make(file: Path, assets: pa.Table, users: pa.Table) -> None:
    try:
        build(file, assets, users)
    except OSError as error:
        raise Retryable(f"{file}: cannot be written ({error.strerror})") from error
    files = sorted(file.parent.glob("[0-9]*.sqlite"), key=_written)
    for old in files[:-KEPT]:
        old.unlink(missing_ok=True)


def _written(file: Path) -> float:
    """When a file was written; one that another process has just removed counts as the oldest."""
    try:
        return file.stat().st_mtime
    except FileNotFoundError:
        return 0.0
