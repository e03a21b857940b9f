"""The tables as they were, for a statement: which version each had, and where that can be read."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path

import duckdb

from infra.delta.duckdb_views import Definition, needed, open_engine, reach
from infra.delta.table_lock import at_home, table_locked
from infra.delta.time_travel import SingleVersion, readable_version, require_files, version_at
from infra.errors import Usage
from infra.storage.paths import is_table, location

AloneWith = Callable[[str], AbstractContextManager[None]]
"""How to be the only writer of a table, by its name."""


def as_of(
    known: Sequence[Definition], tables: Iterable[str], at: datetime, beside: Path, alone: AloneWith
) -> tuple[tuple[Definition, ...], dict[str, int]]:
    """The definitions that `tables` need, each as it was at an instant, and the versions.

    `beside`: where versions that left their log are made readable, as long as they are used.
    Raises `Usage` with a sentence for a table that was not there or is no longer kept so.
    """
    then: list[Definition] = []
    versions: dict[str, int] = {}
    # An engine apart: the one for statements is locked, and may not reach the logs.
    with open_engine(memory="256MB", threads=1) as looking:
        reach(looking, *(definition.folder or "" for definition in known))
        for definition in needed(tables, known):
            # Views have no versions of their own; they follow the tables that they read.
            if definition.folder is not None and is_table(location(definition.folder)):
                versions[definition.name], folder = _was(
                    looking, definition, at, beside, partial(alone, definition.name)
                )
                definition = replace(definition, version=versions[definition.name], folder=folder)
            # Views as well, for they are made anew over the tables of then.
            then.append(definition)
    return tuple(then), versions


def _was(
    engine: duckdb.DuckDBPyConnection,
    one: Definition,
    at: datetime,
    beside: Path,
    alone: SingleVersion,
) -> tuple[int, str]:
    table = location(one.folder or "")
    try:
        version = version_at(one.name, table, at)
        folder = readable_version(engine, table, version, alone, beside / one.name)
    except FileNotFoundError:
        # It was there when it was looked for, and maintenance forgot it since.
        raise Usage(f"{one.name}: as it was at {at.isoformat()} it is no longer kept") from None
    # A log that reaches back is not enough: VACUUM may have taken the files of that version.
    require_files(engine, one.name, folder, version, at)
    return version, str(folder)


@contextmanager
def snapshot_of(home: str, lake: str, name: str) -> Iterator[None]:
    """The only writer of a table of a lake in a bucket, for one that only reads otherwise.

    Raises `Usage` where that cannot be had, and makes no lock: jobs of another account could not
    take one that is ours.
    """
    refused = Usage(
        f"{name}: its commits of then have left its log, and only who may write to the lake and "
        "has the home of its jobs can put them back: ask there, or for a later instant "
        "(docs/how-to/put-the-lake-in-a-bucket.md)"
    )
    from infra.config.settings import load  # late: a lake in a folder has no need of it

    settings = load(home=home, lake=lake)
    if not at_home(settings, name):
        raise refused
    try:
        with table_locked(settings.lake_side, name):
            yield
    except OSError as error:
        # A home that may only be read: not ours, and told as such.
        if isinstance(error, PermissionError) or error.errno == errno.EROFS:
            raise refused from None
        raise
