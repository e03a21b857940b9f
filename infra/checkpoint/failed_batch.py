"""A batch that fails again and again, remembered beside its job's checkpoint.

`<checkpoints>/<job>/poison.json` outlives the driver. One that is started again must not try anew
what stopped a job for good, and of a batch that ends the driver itself nobody else could tell. The
next batch of the job that is in removes it, and so does `headgate jobs resume`.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from infra.errors import Fatal
from infra.process.clock import clock
from infra.process.log import say
from infra.storage.checksums import Damaged, json_object
from infra.storage.state_file import StateFile

_FILE = "poison.json"

_ENDS = 2
"""So many times as many ends of the driver as failures make a batch poison: it may have ended for
other reasons, a person's `kill -9` among them."""

SUSPECTED = 3
"""After so many ends in a batch it may be that batch which ends the driver. Such jobs then begin
one after the other, so that those that were only near it are cleared."""

_REMEDY = (
    "'headgate jobs resume' the job, which deletes it; it only counts how often a batch failed"
)


@dataclass(frozen=True)
class Trouble:
    """What is known of the batch that a job did not get through."""

    query: str
    """Identity of the checkpoint: numbers of batches mean nothing in another one."""
    batch: int
    failures: int = 0
    """How often in a row it failed by its own fault."""
    starved: int = 0
    """How often of these a worker was ended, or got no memory."""
    ends: int = 0
    """How often in a row the driver's process ended in the middle of it."""
    why: str = ""
    """What was said the last time."""
    stopped: str | None = None
    """Why its job stopped for good."""
    at: str = ""
    """When this was noted."""


def read_failures(folder: Path) -> Trouble | None:
    """What is remembered of a job, by its folder. Raises `Fatal` for a damaged file."""
    trouble = _file(folder).read()
    return trouble if trouble is not None and trouble.query == _identity(folder) else None


def suspected(folder: Path) -> Trouble | None:
    """The same for those who only look: of a damaged file the job's start says that it is."""
    with suppress(Fatal, OSError):
        return read_failures(folder)
    return None


def stands(folder: Path) -> str | None:
    """Why a job stopped for good and is not to begin, also where that can no longer be read."""
    try:
        record = read_failures(folder)
    except Fatal as error:
        return str(error)
    if record is None or record.stopped is None:
        return None
    return f"{record.stopped} (so since {record.at})"


def require_no_failure(folder: Path) -> None:
    """Raises `Fatal` while a job is not to begin."""
    if (trouble_text := stands(folder)) is not None:
        raise Fatal(trouble_text)


def failed(
    folder: Path, batch: int, failures: int, why: str, stopped: str | None, starved: int = 0
) -> None:
    """Note that a batch failed so often in a row, and whether its job stopped for that."""
    # Ends of the driver in the same batch stay counted: only what is given here is replaced.
    result = _of(folder, batch)
    _write(folder, replace(result, failures=failures, starved=starved, why=why, stopped=stopped))


def spared(folder: Path) -> None:
    """Note that a job failed by no fault of its batch: the failures before are not in a row with
    what follows. What stopped a job stays."""
    record = read_failures(folder)
    if record is not None and record.stopped is None and record.failures:
        _write(folder, replace(record, failures=0, starved=0))


def ended(job: str, folder: Path, batch: int, attempts: int) -> None:
    """Note that a driver ended in the middle of a batch, and give the job up if too often."""
    # Another batch than the one noted starts from zero: only ends in a row count.
    changed = _of(folder, batch)
    changed = replace(changed, ends=changed.ends + 1)
    message = f"the driver ended {changed.ends} times in a row in the middle of batch {batch}"
    if changed.stopped is None and changed.ends >= _ENDS * attempts:
        remedy = (
            "what it said last, and the kernel's log, may tell why; mend that, then "
            "'headgate jobs resume' the job"
        )
        changed = replace(changed, stopped=f"{message}: {remedy}")
    _write(folder, changed)
    # Once may have any reason, a person's `kill -9` among them.
    if changed.ends > 1:
        say(f"job {job}: {message}")


def forget_failures(folder: Path) -> None:
    """A batch is in, or a person says that the job may go on."""
    _file(folder).remove()


def _of(folder: Path, batch: int) -> Trouble:
    record = read_failures(folder)
    # With the checkpoint's identity, as one begun anew counts its batches from 0 again.
    fresh = Trouble(_identity(folder), batch)
    return record if record is not None and record.batch == batch else fresh


def _write(folder: Path, trouble: Trouble) -> None:
    stamp = clock.now().isoformat(timespec="seconds")
    _file(folder).write(replace(trouble, at=stamp))


def _file(folder: Path) -> StateFile[Trouble]:
    return StateFile(folder / _FILE, Trouble, _REMEDY, newer_keys=True)


def _identity(folder: Path) -> str:
    try:
        return str(json_object((folder / "spark" / "metadata").read_text("utf-8", "replace"))["id"])
    # Before the first start there is no identity; a damaged one is named where the job starts.
    except (OSError, Damaged, KeyError):
        return ""
