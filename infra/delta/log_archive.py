"""Commits of a Delta table that left its log, and how they are still read.

Beside the log, in `_log_archive`: a commit is a file as it was, `<version>.json`, until a
thousand of them become one, `<first>-<last>.commits.gz`. A commit moves from the log to a file
here to a pack, and is never missing in between for a reader that looks in this order.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from infra.storage.checksums import Damaged
from infra.storage.paths import Location, list_folder, since

LOG = "_delta_log"
ARCHIVE = "_log_archive"
READ = "read"
"""Below it: former versions of the table that were made readable (`infra.delta.time_travel`)."""

_PACK = re.compile(r"(\d{20})-(\d{20})\.commits\.gz")


def single(folder: Location, version: int) -> Location:
    """Where a commit lies in a log, or here as long as it is in no pack."""
    return folder / f"{version:020d}.json"


def checkpoint_file(folder: Location, version: int) -> Location:
    """A list of all that made the table at a version, in a log or here."""
    return folder / f"{version:020d}.checkpoint.parquet"


def archive_packs(table: Location) -> Iterator[tuple[int, int, Location]]:
    """The first and the last version of each pack, and its file."""
    for file in list_folder(table / ARCHIVE):
        if named := _PACK.fullmatch(file.name):
            yield int(named.group(1)), int(named.group(2)), file


def singles(folder: Location) -> list[int]:
    """Versions of the commits that are files of their own in a folder, ascending."""
    return sorted(
        int(path.stem)
        for path in list_folder(folder)
        if path.suffix == ".json" and path.stem.isdigit()
    )


def from_on(log: Location, version: int) -> list[tuple[int, float]]:
    """A commit and those after it, as far as they are in a log, and when each was written.

    Seconds since 1970. Costs a look at each of them and one more, or one request in a bucket;
    nothing where the first has left.
    """
    if not isinstance(log, Path):
        names = (
            (name.removesuffix(".json"), position)
            for name, position in since(log, single(log, version).name)
        )
        return [(int(name), position) for name, position in names if name.isdigit()]
    results: list[tuple[int, float]] = []
    with suppress(FileNotFoundError):
        while True:
            position = version + len(results)
            results.append((position, single(log, position).stat().st_mtime))
    return results


def archived(table: Location) -> list[int]:
    """Versions whose commits are here, ascending."""
    packed = [
        version for first, last, _ in archive_packs(table) for version in range(first, last + 1)
    ]
    # A set: while a pack is made, its commits are there twice for a moment.
    return sorted({*packed, *singles(table / ARCHIVE)})


def archived_text(table: Location, version: int) -> str:
    """A commit that left the log. Raises `FileNotFoundError` where there is none, `Damaged`."""
    try:
        return single(table / ARCHIVE, version).read_text("utf-8")
    except FileNotFoundError:
        for first, last, file in archive_packs(table):
            if first <= version <= last:
                return _unpacked(file)[version]
        raise


def modified(table: Location, version: int) -> float:
    """When a commit was written, or its pack; seconds since 1970. Raises `FileNotFoundError`."""
    for folder in (table / LOG, table / ARCHIVE):
        with suppress(FileNotFoundError):
            return single(folder, version).stat().st_mtime
    for first, last, file in archive_packs(table):
        if first <= version <= last:
            return file.stat().st_mtime
    raise FileNotFoundError(single(table / ARCHIVE, version))


# Readers go from version to version, and a pack has a thousand of them.
@lru_cache(maxsize=4)
def _unpacked(file: Location) -> dict[int, str]:
    try:
        with gzip.open(io.BytesIO(file.read_bytes()), "rt", encoding="utf-8") as lines:
            decoded = [json.loads(line) for line in lines]
        return {entry["version"]: entry["commit"] for entry in decoded}
    except FileNotFoundError:
        raise
    except (OSError, EOFError, zlib.error, ValueError, LookupError, TypeError) as error:
        raise Damaged(f"{file.name}: {error}") from None
