"""What batches of a job cost here, kept beside its checkpoint for the next start."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from infra.storage.atomic_files import write_whole
from infra.streaming.rate_controller import Learned, Line


def keep(folder: Path, learned: Learned) -> None:
    """Leave it in a job's folder of checkpoints."""
    with suppress(OSError):  # only a start with less knowledge
        write_whole(folder / "learned.json", json.dumps(asdict(learned)))


def kept(folder: Path, guess: Learned) -> Learned:
    """What was left there, else a guess."""
    try:
        told = json.loads((folder / "learned.json").read_text("utf-8"))
        return Learned(**{name: Line(**line) for name, line in told.items()})
    except (OSError, ValueError, TypeError, AttributeError):
        return guess
