"""The index that belongs to a version of the tables, kept beside them so that workers reach it.

A batch decides on the newest versions when it first runs and names them again when it is retried:
so it reads what it read before, and an inventory that was loaded meanwhile counts from the next.
An erasure ends that for the versions before it: they hold who is gone.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from enrich.assets.index import build
from enrich.tables_assets import ASSET_VERSION, USER_VERSION
from infra.config.settings import Settings
from infra.delta.duckdb_views import definitions, open_engine, refresh
from infra.delta.log_reader import newest_version
from infra.delta.schema import Table
from infra.errors import Retryable
from infra.storage.atomic_files import write_whole
from infra.storage.paths import Location

if TYPE_CHECKING:
    import pyarrow as pa

    from infra.streaming.lake import Lake

_KEPT = 20
"""Newest index files that stay; an older one is made again from its versions if it is asked for."""
ERASED = "erased"
"""File with the versions, as `newest` names them, before which somebody was in the tables."""
DEAD_SECONDS = 3600.0
"""A file in the making that was not written to for so long is of a process that was killed."""


def latest_index(lake: Lake) -> str | None:
    """The newest versions of both tables as one name; None while nothing was ever loaded."""
    return _newest(lake.settings.lake_root)


def _newest(lake_root: Location) -> str | None:
    versions = [
        # A table that was never made has version -1, whose sign would part the name once more.
        max(0, newest_version(lake_root / table.path))
        for table in (ASSET_VERSION, USER_VERSION)
    ]
    return "-".join(str(version) for version in versions) if any(versions) else None


def index_file(lake: Lake, name: str | None) -> str | None:
    """The index of the versions that `newest` named, made if it is not there; None for None.

    Made anew after an erasure it is of the tables as they are: these know as well who was who when,
    without those who are gone.
    """
    if name is None:
        return None
    file = index_path(lake.settings, name)
    # Once more where an erasure ended in between (`_make_as_of`).
    while not file.exists():
        erased = _erased(lake.settings)
        named: list[int | None] = [int(version) for version in name.split("-")]
        assets, users = [None, None] if _is_before(name, erased) else named
        lake.ensure(ASSET_VERSION, USER_VERSION)
        read = (
            lake.read(ASSET_VERSION, assets).toArrow(),
            lake.read(USER_VERSION, users).toArrow(),
        )
        _make_as_of(lake.settings, erased, file, *read)
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
        erased = _erased(settings)
        read = [_read(settings, table) for table in (ASSET_VERSION, USER_VERSION)]
        # A load in between would file newer rows under the former versions.
        if _newest(settings.lake_root) == name and _make_as_of(settings, erased, file, *read):
            return str(file)
    raise Retryable("the inventories are being loaded; ask again")


def _read(settings: Settings, table: Table) -> pa.Table:
    """All rows of a table; none where it was not made yet."""
    # Late: who only asks an index that is there needs neither Arrow nor what writes files.
    from infra.delta.parquet_writer import arrow_schema

    engine = open_engine(memory="1GB", threads=2)
    try:
        tables = [
            definition
            for definition in definitions(settings.lake_root)
            if definition.name == table.name
        ]
        if refresh(engine, tables):
            return arrow_schema(table).empty_table()
        arrow_table = engine.execute(f"SELECT * FROM {table.name}").to_arrow_table()
        return arrow_table.cast(arrow_schema(table))
    finally:
        engine.close()


def index_path(settings: Settings, name: str) -> Path:
    """Where the index of the versions that `newest` named lies, once it is made."""
    return _folder(settings) / f"{name}.sqlite"


def index_files(settings: Settings) -> list[Path]:
    """All indexes that are there, and what is left of some that were never finished."""
    folder = _folder(settings)
    dead = time.time() - DEAD_SECONDS
    left = [file for file in folder.glob(".*.sqlite.*") if _written(file) < dead]
    return sorted(folder.glob("[0-9]*.sqlite")) + sorted(left)


def end_former(settings: Settings) -> None:
    """From now on no index is made of versions of the tables from before now."""
    name = _newest(settings.lake_root)
    if name is not None:
        write_whole(_folder(settings) / ERASED, name)


def renew_index(settings: Settings, files: Iterable[Path]) -> None:
    """Take the contents of some of `index_files` away.

    A batch may have asked for one and its workers open it only later, so the newest index is put in
    its place. Where that cannot be linked the file is just gone, and the batch begins again.
    """
    gone = list(files)
    for file in gone:
        if file.name.startswith(".") or file.stem == _newest(settings.lake_root):
            file.unlink(missing_ok=True)
    newest = None
    with suppress(Retryable):
        newest = newest_index(settings)
    for file in gone:
        if str(file) != newest and not (newest and _linked(newest, file)):
            file.unlink(missing_ok=True)


def _linked(newest: str, file: Path) -> bool:
    if not file.exists():
        return False
    link = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
    try:
        os.link(newest, link)
        # `os.link` refuses a name that is taken; a rename replaces it, and never leaves none.
        link.replace(file)
    except OSError:
        return False
    return True


def _erased(settings: Settings) -> str | None:
    try:
        return (_folder(settings) / ERASED).read_text("utf-8")
    except FileNotFoundError:
        return None


def _is_before(name: str, erased: str | None) -> bool:
    """Whether one of two versions is older than its table was when somebody had been erased."""
    if erased is None:
        return False
    pairs = zip(name.split("-"), erased.split("-"), strict=True)
    return any(int(version) < int(first) for version, first in pairs)


def _folder(settings: Settings) -> Path:
    return settings.lake_side / "_inventory"


def _make_as_of(settings: Settings, erased: str | None, file: Path, *read: pa.Table) -> bool:
    """Make a file of what was read after `erased` was; whether it stays.

    Not when an erasure has ended meanwhile, which found no such file to remove.
    """
    _make(file, *read)
    stays = _erased(settings) == erased
    if not stays:
        file.unlink(missing_ok=True)
    return stays


def _make(file: Path, assets: pa.Table, users: pa.Table) -> None:
    try:
        build(file, assets, users)
    except OSError as error:
        raise Retryable(f"{file}: cannot be written ({error.strerror})") from error
    # Without hidden files: those are of other processes that are still making them.
    files = sorted(file.parent.glob("[0-9]*.sqlite"), key=_age)
    for old in files[:-_KEPT]:
        old.unlink(missing_ok=True)


def _age(file: Path) -> tuple[float, list[int]]:
    """Of files that `renew` has linked to one the name tells which was asked for last."""
    return _written(file), [int(version) for version in file.stem.split("-")]


def _written(file: Path) -> float:
    """When a file was written; one that another process has just removed counts as the oldest."""
    try:
        return file.stat().st_mtime
    except FileNotFoundError:
        return 0.0
