"""Where a lake's tables lie, which version they have, and being alone with one: without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from infra.config.settings import Settings
from infra.delta.duckdb_views import open_engine, reach
from infra.delta.log_reader import newest_version
from infra.delta.schema import Table
from infra.delta.table_lock import require_locks_here, table_locked
from infra.delta.time_travel import instant_of_version, readable_version
from infra.errors import Usage
from infra.storage.paths import HOME, Location


class TableLocations:
    """The tables under `settings.lake_root`."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        # In a folder all writers find the same locks beside the tables; in a bucket there are none.
        self._ours = isinstance(settings.lake_root, Path)

    def folder(self, table: Table) -> Location:
        """The table's folder."""
        return self.settings.lake_root / table.path

    def path(self, table: Table) -> str:
        """The same as Spark wants it."""
        return str(self.folder(table))

    def version(self, table: Table) -> int:
        """Newest version of a table, -1 when it does not exist."""
        return newest_version(self.folder(table))

    def path_at(self, table: Table, version: int) -> str:
        """Where Spark reads a version of the table, also one that left its log.

        Raises `Usage` when that is no longer kept.
        """
        folder = self.folder(table)
        if instant_of_version(folder, version):
            return str(folder)
        # It only lists the files of a version, so a small engine does.
        with open_engine(memory="256MB", threads=1) as engine:
            reach(engine, folder)
            try:
                return str(readable_version(engine, folder, version, partial(self.alone, table)))
            except FileNotFoundError:
                raise Usage(f"{table.name}: its version {version} is no longer kept") from None

    @contextmanager
    def alone(self, table: Table) -> Iterator[None]:
        """The only writer of a table, over processes (docs/how-to/run-several-drivers.md).

        A rename on a file system replaces what is there, so two commits of
        one version, made at the same instant by two processes, would leave one.
        """
        self.claim()
        with table_locked(self.settings.lake_side, table.name):
            yield

    def claim(self) -> None:
        """Raises `Fatal` when another home's writers have the lake (`require_home`)."""
        if not self._ours:
            with table_locked(self.settings.lake_side, HOME):
                require_locks_here(self.settings)
            self._ours = True
