"""Reading a Delta table's log without Spark: markers, versions, the files of a commit.

Source of the format: the Delta transaction log protocol, "Delta Log Entries"
and "Commit Provenance Information".
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from infra.errors import Fatal
from infra.files import write_whole


@dataclass(frozen=True)
class Commit:
    """One commit: its version, who made it, and what it added."""

    version: int
    user_metadata: str | None
    operation: str | None
    rows: int
    adds: tuple[str, ...]
    changes_data: bool
    stats: tuple[dict[str, Any], ...]
    """Of each file added, what the log says of its contents; empty where it says nothing."""

    @property
    def marker(self) -> dict[str, Any] | None:
        """Our marker, if the commit carries one."""
        try:
            found = json.loads(self.user_metadata or "null")
        except ValueError:
            return None
        return found if isinstance(found, dict) and "job" in found else None


def versions(table: Path) -> list[int]:
    """Versions whose commit file is still there, ascending."""
    log = table / "_delta_log"
    if not log.is_dir():
        return []
    return sorted(int(p.stem) for p in log.iterdir() if p.suffix == ".json" and p.stem.isdigit())


def commit(table: Path, version: int) -> Commit:
    """Read one commit; raises `FileNotFoundError` when log clean-up has taken it."""
    text = (table / "_delta_log" / f"{version:020d}.json").read_text("utf-8")
    info: dict[str, Any] = {}
    adds: list[str] = []
    changes = False
    stats: list[dict[str, Any]] = []
    for line in text.splitlines():
        action = json.loads(line) if line.strip() else {}
        if "commitInfo" in action:
            info = action["commitInfo"]
        elif "add" in action:
            adds.append(unquote(action["add"]["path"]))
            stats.append(json.loads(action["add"].get("stats") or "{}"))
            changes = changes or action["add"].get("dataChange", True)
    return Commit(
        version=version,
        user_metadata=info.get("userMetadata"),
        operation=info.get("operation"),
        rows=sum(each.get("numRecords", 0) for each in stats),
        adds=tuple(adds),
        changes_data=changes,
        stats=tuple(stats),
    )


def newest_first(table: Path) -> Iterator[Commit]:
    """Commits from the newest down, as far as the log reaches."""
    for version in reversed(versions(table)):
        try:
            yield commit(table, version)
        except FileNotFoundError:
            return


def newest_version(table: Path) -> int:
    """Newest version, -1 when there is no table."""
    return max(versions(table), default=-1)


def table_id(table: Path) -> str:
    """Identity of a Delta table, so that a lake made anew is not taken for the old one.

    Kept beside the data: log clean-up takes the commit that says it.
    """
    kept = table / "_identity"
    if kept.exists():
        return kept.read_text("utf-8").strip()
    first = table / "_delta_log" / f"{0:020d}.json"
    for line in first.read_text("utf-8").splitlines() if first.exists() else ():
        action = json.loads(line)
        if "metaData" in action:
            identity = str(action["metaData"]["id"])
            write_whole(kept, identity)
            return identity
    raise Fatal(f"{table}: version 0 of its log is gone; its identity cannot be told")
