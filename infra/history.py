"""Tables as they were: which version a table had at an instant, and whether it can still be read.

A version is there as long as the log tells its files and none of them was deleted. What upkeep
promises of that is `upkeep.keep_hours`; here it is looked at, not reckoned.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import duckdb

from infra.commits import checkpoints, versions
from infra.errors import Usage


def version_at(name: str, table: Path, at: datetime) -> int:
    """The newest version of a table that was committed up to `at`, an instant with a zone.

    By the times in the commits themselves, which a copy of the files keeps. Raises `Usage` with
    a sentence when there was no such table then, or when the log no longer tells.
    """
    kept = versions(table)
    when = Committed(table)
    found = bisect_right(kept, at, key=when.of)
    if found == 0:
        first = when.of(kept[0]).isoformat(timespec="seconds") if kept else "never"
        if kept and kept[0] == 0:
            raise Usage(f"{name}: there was no such table at {_said(at)}; it was made at {first}")
        raise Usage(f"{name}: its history at {_said(at)} is no longer kept; it begins at {first}")
    version = kept[found - 1]
    if not _told(kept[:found], checkpoints(table)):
        raise Usage(
            f"{name}: its history at {_said(at)} (version {version}) is no longer kept: the log "
            "lacks what came before"
        )
    return version


def require_files(
    engine: duckdb.DuckDBPyConnection, name: str, table: Path, version: int, at: datetime
) -> None:
    """Raises `Usage` when files of a version were deleted since."""
    listed = engine.execute(
        "SELECT data_file FROM delta_list_files($folder, version => $version)",
        {"folder": str(table), "version": version},
    ).fetchall()
    gone = sum(not Path(file.removeprefix("file://")).exists() for (file,) in listed)
    if gone:
        raise Usage(
            f"{name}: as it was at {_said(at)} (version {version}) it can no longer be read: "
            f"{gone} of its {len(listed)} files were deleted since. Upkeep keeps what left a "
            "table for upkeep.keep_hours; ask for a later instant"
        )


class Committed:
    """When the commits of a table were made, each read once."""

    def __init__(self, table: Path) -> None:
        self._log = table / "_delta_log"
        self._known: dict[int, datetime] = {}

    def of(self, version: int) -> datetime:
        """When a version was committed, UTC. Raises `FileNotFoundError` when its file is gone."""
        if version not in self._known:
            with (self._log / f"{version:020d}.json").open("rb") as file:
                # Delta writes it first; where others do not, the file's own time stands in.
                first = json.loads(file.readline() or b"{}").get("commitInfo") or {}
            millis = first.get("timestamp")
            if millis is None:
                millis = file_millis(self._log / f"{version:020d}.json")
            self._known[version] = datetime.fromtimestamp(millis / 1000, UTC)
        return self._known[version]


def file_millis(file: Path) -> int:
    """When a file was last written, milliseconds since 1970."""
    return file.stat().st_mtime_ns // 1_000_000


def _told(kept: Sequence[int], known: Sequence[int]) -> bool:
    """Whether the log tells the files of the last of `kept`: from its beginning or a checkpoint."""
    start = max((one for one in known if one <= kept[-1]), default=-1)
    return len(kept) >= 1 and kept[-1] - start <= sum(one > start for one in kept)


def _said(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
