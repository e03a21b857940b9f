"""Removed settings: for one release a value is dropped and that is said, or it is refused.

A value is dropped where everything that was made with it goes on without it, and refused where
somebody has to do something first. The only place that knows them, for the file, for overrides and
for environment variables.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from infra.errors import Usage


@dataclass(frozen=True)
class RemovedSetting:
    """What is said of each value that a setting had. `refused`: of those it is not dropped for."""

    dropped: Mapping[str, str]
    refused: Mapping[str, str] = field(default_factory=dict)


_MARKED = "every commit carries a marker of headgate's own"

REMOVED_SETTINGS = {
    "sink": RemovedSetting({"marker": _MARKED, "txn": f"{_MARKED}, and did so beside Delta's txn"}),
    "jobs.session_state": RemovedSetting(
        {"blob": "session state has this form only"},
        {
            "cells": "session state has one form, blobs; take the setting out, and where job "
            "sessions has run, 'headgate rebuild sessions' makes its state anew, nothing is lost"
        },
    ),
}
"""By former name."""

_warned: set[str] = set()


def without_removed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Nested settings without those that are gone.

    Raises `Usage` for a value that is refused, and for one that the setting never had.
    """
    left = dict(values)
    for name, gone in REMOVED_SETTINGS.items():
        section, _, word = name.rpartition(".")
        inside = left.get(section) if section else left
        if not isinstance(inside, Mapping) or word not in inside:
            continue
        _warn(name, inside[word], gone)
        without = {key: value for key, value in inside.items() if key != word}
        left = {**left, section: without} if section else without
    return left


def _warn(name: str, value: Any, gone: RemovedSetting) -> None:
    reason = gone.dropped.get(value) if isinstance(value, str) else None
    if reason is None:
        refused = gone.refused.get(value) if isinstance(value, str) else None
        values = ", ".join((*gone.dropped, *gone.refused))
        why = refused or f"it never had that value (only {values}); take it out"
        raise Usage(f"setting {name} = {value!r} is gone: {why}")
    if name not in _warned:
        _warned.add(name)
        print(f"headgate: setting {name} is gone, take it out: {reason}", file=sys.stderr)
