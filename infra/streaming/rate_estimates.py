"""What batches of a job cost here, kept beside its checkpoint for the next start."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from infra.process.log import say
from infra.storage.state_file import StateFile
from infra.streaming.rate_controller import Learned


def write_estimates(folder: Path, learned: Learned) -> None:
    """Leave it in a job's folder of checkpoints."""
    with suppress(OSError):  # only a start with less knowledge
        _file(folder).write(learned)


def read_estimates(folder: Path, guess: Learned) -> Learned:
    """What was left there, else a guess."""
    with suppress(OSError):
        return _file(folder).read_or(guess, say)
    return guess


def _file(folder: Path) -> StateFile[Learned]:
    remedy = "it is learned anew, and replaced by the next batches"
    return StateFile(folder / "learned.json", Learned, remedy)
