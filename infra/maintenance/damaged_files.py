"""Files of tables that a disk or a hand damaged, put back as a backup has them.

A file of a table is written once: of one name there is one content, which the backup's manifest
has the digest of. So what differs from it is damaged, and jobs may run meanwhile: a reader sees
the former file or the whole one. Nothing that an erasure took out comes back: only files that the
table has are put back, and one that leaves it meanwhile goes again.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from infra.config.settings import Settings
from infra.delta.catalog import catalog, table
from infra.delta.data_files import listed_files
from infra.delta.log_reader import newest_version
from infra.delta.schema import Table
from infra.errors import Fatal, NoLakeHere
from infra.maintenance.backup import Show, backup_parts, copy_file, digest_of_file
from infra.maintenance.restore import read_manifest
from infra.storage.paths import Location, delete, there
from infra.storage.put_back_mark import leave_put_back


@dataclass
class PutBack:
    """What a look at the files of some tables came to."""

    files: list[str] = field(default_factory=list)
    """Those that were put back, by their names below the lake."""
    compared: int = 0
    not_in_backup: int = 0
    """Written since the backup, or merged from others since."""


def put_back_damaged(
    settings: Settings,
    made: Path,
    tables: Sequence[str] = (),
    show: Show = lambda done, total: None,
    result: PutBack | None = None,
) -> PutBack:
    """Compare the files of these tables, else of all, with a backup; put back those that differ.

    `result`: is filled on the way. Raises `Usage` for no backup and for a table that there is not,
    `Fatal` where there is no lake, a table's log or the backup's own copy is damaged, or a file
    cannot be put back; what was put back before stays, and is in `result`.
    """
    if not there(settings.lake_root):
        raise NoLakeHere(
            f"{settings.lake_root}: there is no lake here; restore the backup without --damaged"
        )
    manifest = read_manifest(made, backup_parts(settings))["files"]
    result = result or PutBack()
    recorded: list[tuple[Table, str, dict[str, Any]]] = []
    for each in _wanted(tables):
        for name, size in _files_of(settings, each).items():
            whole = manifest.get(f"lake/{each.path}/{name}")
            # A lake made anew may have a file of the same name.
            if whole is None or whole["bytes"] != size:
                result.not_in_backup += 1
            else:
                recorded.append((each, name, whole))
    try:
        _compare(settings, made, recorded, show, result)
    finally:
        # Also of those before one that could not be put back.
        if result.files:
            leave_put_back(settings.lake_root)
    return result


def _compare(
    settings: Settings,
    made: Path,
    recorded: Sequence[tuple[Table, str, dict[str, Any]]],
    show: Show,
    result: PutBack,
) -> None:
    total, done = sum(whole["bytes"] for _, _, whole in recorded), 0
    for each, name, whole in recorded:
        file = settings.lake_root / each.path / name
        # Looked up again: meanwhile an erasure may have taken it out of the table.
        if _digest(file) != whole["sha256"] and name in _files_of(settings, each):
            _put(made / "lake" / each.path / name, file, whole["sha256"])
            # An erasure may have taken it out, and deleted it, while it was copied.
            if name in _files_of(settings, each):
                result.files.append(f"{each.path}/{name}")
            else:
                delete([file])
        result.compared += 1
        done += whole["bytes"]
        show(done, total)


def _wanted(tables: Sequence[str]) -> list[Table]:
    return [table(name) for name in dict.fromkeys(tables)] or list(catalog().values())


def _files_of(settings: Settings, each: Table) -> dict[str, int]:
    """The files that a table has now, and their bytes, as its log has them."""
    folder = settings.lake_root / each.path
    try:
        newest = newest_version(folder)
        listed = listed_files(folder, newest) if newest >= 0 else []
    except (OSError, ValueError) as error:
        raise Fatal(
            f"{each.name}: its log cannot be read ({error}), and files of logs are not put back "
            "alone: restore the whole backup, or put back other tables with --table"
        ) from None
    return {file.name: int(file.entry["size"]) for file in listed}


def _digest(file: Location) -> str | None:
    """What a file is; None: it is not there, or cannot be read."""
    try:
        with file.open("rb") as read:
            content: Any = read  # of a bucket it is no BinaryIO by its type
            return hashlib.file_digest(content, "sha256").hexdigest()
    except OSError:
        return None


def _put(copy: Path, file: Location, digest: str) -> None:
    try:
        if digest_of_file(copy) != digest:
            raise Fatal(f"{copy}: is not what was backed up (its digest differs); take another")
        if isinstance(file, Path):
            _replace(copy, file, digest)
        else:
            copy_file(copy, file)  # there, whole, once all of it has arrived
    except OSError as error:
        raise Fatal(f"{file}: cannot be put back: {error}") from None


def _replace(copy: Path, file: Path, digest: str) -> None:
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        if copy_file(copy, beside)[0] != digest:
            raise Fatal(f"{copy}: changed while it was copied; nothing was put back of it")
        # Who remembers a file by its time is to see another one.
        os.utime(beside)
        exists = file.exists()
        was = (file if exists else file.parent).stat()
        if exists:
            beside.chmod(stat.S_IMODE(was.st_mode))
        # Root is not to take it from the jobs, which have to read it.
        if os.geteuid() == 0:
            os.chown(beside, was.st_uid, was.st_gid)
        beside.replace(file)
    finally:
        beside.unlink(missing_ok=True)
