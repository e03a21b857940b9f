"""Whether a job's checkpoint is whole, and how far it says the tables are."""

from __future__ import annotations

from pathlib import Path

from infra.checkpoint.batch_decisions import decided, decisions_file
from infra.checkpoint.offset_log import digest_of, numbers
from infra.errors import Fatal
from infra.storage.checksums import Damaged, emptied, json_object, logged, read_checked


def check(name: str, folder: Path) -> None:
    """Refuse a checkpoint that would skip or double a batch, naming what is wrong with it."""
    spark = folder / "spark"
    offsets, commits = numbers(spark / "offsets"), numbers(spark / "commits")
    begun = numbers(folder / "batches", ".json")
    remedy = f"restore {folder} from a backup that is not older than the tables"
    # Offsets without it: Spark would give the query a new id, and take its batches for others.
    metadata = spark / "metadata"
    if offsets and not _is_json(metadata):
        raise Fatal(f"checkpoint of job {name}: {metadata} is missing or damaged; {remedy}")
    # A batch decides only after Spark has planned it, so entries of the offset log are lost.
    if begun and (not offsets or max(begun) > max(offsets)):
        raise Fatal(
            f"checkpoint of job {name}: batch {max(begun)} was already worked on, but the newest "
            f"of its offsets is {max(offsets, default='missing')}; {remedy}"
        )
    # Spark reads only the newest entry and the one before it when a query starts.
    for number in sorted(offsets)[-2:]:
        _require_sound(name, spark / "offsets" / str(number), 3, remedy)
    # A lost commit entry costs a repeated batch only where no later offsets build on it.
    if commits:
        again = f"remove it, and batch {max(commits)} is worked on again"
        whole = remedy if max(offsets, default=0) > max(commits) else again
        _require_sound(name, spark / "commits" / str(max(commits)), 2, whole)
    # Spark writes no file without a byte: an empty one was cut off, by a power cut for example.
    if (hollow := emptied(spark / "state")) is not None:
        raise Fatal(f"checkpoint of job {name}: {hollow} is damaged (it is empty); {remedy}")
    # Spark plans a batch only when the one before it is committed: a wider gap is lost files.
    if offsets and commits and max(offsets) - max(commits) > 1:
        raise Fatal(
            f"checkpoint of job {name}: offsets reach batch {max(offsets)}, commits only "
            f"{max(commits)}; {remedy}"
        )


def _require_sound(name: str, file: Path, lines: int, remedy: str) -> None:
    """Refuse an entry of Spark's logs that is damaged, or not what its batch was worked on with."""
    try:
        logged(file, lines)
        if file.parent.name == "offsets":
            _compare(file)
    except Damaged as error:
        raise Fatal(f"checkpoint of job {name}: {file} is damaged ({error}); {remedy}") from None


def _compare(offsets: Path) -> None:
    """Raises `Damaged` for offsets that are not those which their batch was worked on with."""
    folder = offsets.parent.parent.parent
    number = int(offsets.name)
    if not decisions_file(folder, number).exists():
        return
    expected = decided(folder, number).get("digest")
    # The digest comes with the ledger row: a batch that did not get so far has none to compare.
    if expected not in (None, digest_of(offsets.read_bytes())):
        raise Damaged("its batch was worked on with other offsets")


def unfinished(folder: Path) -> int | None:
    """The batch of a checkpoint that was planned and is not in; None: there is none."""
    planned = max(numbers(folder / "spark" / "offsets"), default=None)
    if planned is None or planned in numbers(folder / "spark" / "commits"):
        return None
    # With its ledger row left, all its tables were committed: only Spark's note of it is missing.
    begun = decisions_file(folder, planned).exists()
    return None if begun and decided(folder, planned).get("in_ledger") else planned


def newest_written(folder: Path) -> dict[str, tuple[int, int]]:
    """By table, the newest batch of a checkpoint that is known to be in it, and its version."""
    results: dict[str, tuple[int, int]] = {}
    # Oldest first, so that of each table the newest batch is the one that stays.
    for number in sorted(numbers(folder / "batches", ".json")):
        versions = decided(folder, number).get("versions", {})
        results |= {name: (number, version) for name, version in versions.items()}
    return results


def _is_json(path: Path) -> bool:
    try:
        return "id" in json_object(read_checked(path))
    except (OSError, Damaged):
        return False
