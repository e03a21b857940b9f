"""What a checkpoint of job `sessions` is for: the version of its state, and its buckets.

Both are fixed for the life of a checkpoint. A file beside it says what they are, so that a
release or a setting that does not fit is told apart from a fresh start before Spark runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from enrich.dhcp.state_cells import VERSION
from enrich.dhcp.state_encoding import WHOLE
from infra.checkpoint.offset_log import numbers
from infra.config.settings import Settings
from infra.errors import Fatal
from infra.storage.state_file import StateFile

SESSIONS_JOB = "sessions"
INPUT = "input"
"""Key in a commit's marker: how far the batch has read its input, as Spark notes it."""


VERSIONS = {"blob": WHOLE, "cells": VERSION}
"""Versions of the state, by what `jobs.session_state` calls them."""


@dataclass(frozen=True)
class Shape:
    """Version of the state, and the number of buckets (None: not noted, by a release before)."""

    version: int
    buckets: int | None


def layout_folder(settings: Settings) -> Path:
    """The job's folder below the checkpoints."""
    return settings.checkpoint_root / SESSIONS_JOB


def read_layout(checkpoint: Path) -> Shape | None:
    """The shape of the checkpoint in a job's folder, None when there is no checkpoint."""
    if not numbers(checkpoint / "spark" / "offsets"):
        return None
    return _file(checkpoint).read() or Shape(WHOLE, None)


def note_layout(checkpoint: Path, shape: Shape) -> None:
    """Write down what a checkpoint is for."""
    _file(checkpoint).write(shape)


def _file(checkpoint: Path) -> StateFile[Shape]:
    remedy = "restore it from a backup, or make the state anew: headgate rebuild sessions"
    return StateFile(checkpoint / "state.json", Shape, remedy)


def wanted_layout(settings: Settings) -> Shape:
    """What the settings ask of a checkpoint; nothing else asks `jobs.session_state`."""
    return Shape(VERSIONS[settings.jobs.session_state], settings.jobs.session_buckets)


def claim(settings: Settings) -> int:
    """See that the checkpoint is for this release and these settings; note it for a new one.

    The version of its state, which every other function is given. Raises `Fatal` that says what
    it is for, and what makes it fit.
    """
    checkpoint = layout_folder(settings)
    wanted = wanted_layout(settings)
    there = read_layout(checkpoint)
    # A release before noted no number of buckets; the settings' one is taken for it.
    if there is None or there == Shape(wanted.version, None):
        checkpoint.mkdir(parents=True, exist_ok=True)
        note_layout(checkpoint, wanted)
    elif there.version != wanted.version:
        kept = next((name for name, layout in VERSIONS.items() if layout == there.version), None)
        if kept is None:
            raise Fatal(
                f"job {SESSIONS_JOB}: the state in {checkpoint} has version {there.version}, "
                "which this "
                f"release does not know; 'headgate rebuild {SESSIONS_JOB}' makes it anew, "
                "nothing is lost"
            )
        raise Fatal(
            f"job {SESSIONS_JOB}: the state in {checkpoint} lies in {kept} form, the settings say "
            f"jobs.session_state = {settings.jobs.session_state}; set that back, or "
            f"'headgate rebuild {SESSIONS_JOB}' makes the state anew, nothing is lost"
        )
    elif there.buckets != wanted.buckets:
        raise Fatal(
            f"job {SESSIONS_JOB}: the state in {checkpoint} has {there.buckets} buckets, the "
            "settings say "
            f"jobs.session_buckets = {wanted.buckets}; set that back, or 'headgate rebuild "
            f"{SESSIONS_JOB}' "
            "makes the state anew, nothing is lost"
        )
    return wanted.version
