"""What a checkpoint of job `sessions` is for: the version of its state, and its buckets.

Both are fixed for the life of a checkpoint. A file beside it says what they are, so that a
release or a setting that does not fit is told apart from a fresh start before Spark runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from enrich.dhcp.state_encoding import CELLS, VERSION, WHOLE
from infra.checkpoint.offset_log import numbers
from infra.config.settings import Settings
from infra.errors import Fatal
from infra.storage.state_file import StateFile

SESSIONS_JOB = "sessions"
INPUT = "input"
"""Key in a commit's marker: how far the batch has read its input, as Spark notes it."""


@dataclass(frozen=True)
class StateLayout:
    """Version of the state, and the number of buckets (None: not noted, by a release before)."""

    version: int
    buckets: int | None


def layout_folder(settings: Settings) -> Path:
    """The job's folder below the checkpoints."""
    return settings.checkpoint_root / SESSIONS_JOB


def read_layout(checkpoint: Path) -> StateLayout | None:
    """The shape of the checkpoint in a job's folder, None when there is no checkpoint."""
    if not numbers(checkpoint / "spark" / "offsets"):
        return None
    return _file(checkpoint).read() or StateLayout(WHOLE, None)


def note_layout(checkpoint: Path, shape: StateLayout) -> None:
    """Write down what a checkpoint is for."""
    _file(checkpoint).write(shape)


def _file(checkpoint: Path) -> StateFile[StateLayout]:
    remedy = "restore it from a backup, or make the state anew: headgate rebuild sessions"
    return StateFile(checkpoint / "state.json", StateLayout, remedy)


def wanted_layout(settings: Settings) -> StateLayout:
    """What this release and the settings make of a checkpoint."""
    return StateLayout(VERSION, settings.jobs.session_buckets)


def claim(settings: Settings) -> None:
    """See that the checkpoint is for this release and these settings, and note that it is.

    One of the release before goes on: its blobs are read, and written as this release writes them.
    Raises `Fatal` that says what it is for, and what makes it fit.
    """
    checkpoint = layout_folder(settings)
    expected = wanted_layout(settings)
    there = read_layout(checkpoint)
    if there is not None and there.version not in (WHOLE, VERSION):
        what = (
            "lies in cells, a form that is gone"
            if there.version == CELLS
            else f"has version {there.version}, which this release does not know"
        )
        raise Fatal(
            f"job {SESSIONS_JOB}: the state in {checkpoint} {what}; "
            f"'headgate rebuild {SESSIONS_JOB}' makes it anew, nothing is lost"
        )
    # An early release noted no number of buckets; the settings' one is taken for it.
    if there is not None and there.buckets not in (None, expected.buckets):
        raise Fatal(
            f"job {SESSIONS_JOB}: the state in {checkpoint} has {there.buckets} buckets, the "
            f"settings say jobs.session_buckets = {expected.buckets}; set that back, or 'headgate "
            f"rebuild {SESSIONS_JOB}' makes the state anew, nothing is lost"
        )
    if there != expected:
        checkpoint.mkdir(parents=True, exist_ok=True)
        note_layout(checkpoint, expected)
