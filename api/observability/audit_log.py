"""Who asked what: one file an act, which the driver folds into ops.audit."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil

from infra.config.settings import Settings
from infra.errors import Retryable
from infra.streaming.outbox import put_file, put_row

_KEY = "api"
"""Who has the token of the settings; further keys have names of their own."""


def audit_request(
    settings: Settings,
    act: str,
    outcome: str,
    *,
    who: str = _KEY,
    target: str | None = None,
    detail: Mapping[str, Any] | None = None,
) -> None:
    """Leave one row of ops.audit in `<home>/spool/audit`; whole or not at all.

    `outcome`: ok, refused or failed. Raises `Retryable` when it cannot be
    written: an act that leaves no trace is not done.
    """
    instant = datetime.now(UTC)
    folder = _folder(settings)
    try:
        put_row(folder, _name(instant), _row(instant, act, outcome, who, target, detail))
    except OSError as error:
        raise Retryable(f"{folder}: cannot be written ({error.strerror})") from error


@dataclass
class AuditedAct:
    """An act under way, and how it is noted once it has ended."""

    outcome: str
    detail: dict[str, Any]


@contextmanager
def audited_act(
    settings: Settings, act: str, detail: Mapping[str, Any], *, who: str = _KEY
) -> Iterator[AuditedAct]:
    """Note an act when it ends, and also one whose end this process does not live to see: that
    one is noted when the next process begins (`note_unended`).

    Raises `Retryable` before anything is done when neither can be written.
    """
    instant = datetime.now(UTC)
    # A leading dot keeps it from the driver, which folds `*.json`; the pid says whose it is.
    file = _folder(settings) / f".{_name(instant)}.{os.getpid()}{_BEGUN}"
    reason = f"process {os.getpid()} ended before it did"
    # Written as failed in advance: whoever finds it has only to rename it.
    row = _row(instant, act, "failed", who, None, {**detail, "said": reason})
    try:
        # Whole: a process may be killed while it writes, and the next would note half a row.
        put_file(file, row)
    except OSError as error:
        raise Retryable(f"{file.parent}: cannot be written ({error.strerror})") from error
    act_row = AuditedAct("failed", dict(detail))
    try:
        yield act_row
    finally:
        # The row first, then the marker goes: a crash in between notes the act twice, never not at
        # all.
        audit_request(settings, act, act_row.outcome, who=who, detail=act_row.detail)
        file.unlink(missing_ok=True)


def note_unended(settings: Settings) -> int:
    """Note what processes that are gone left under way; how many acts."""
    count = 0
    for file in sorted(_folder(settings).glob(f".*{_BEGUN}")):
        pid = file.name.removesuffix(_BEGUN).rpartition(".")[2]
        # Our own number may be that of a process that is gone: numbers are given again.
        if pid.isdigit() and psutil.pid_exists(int(pid)) and int(pid) != os.getpid():
            continue
        with suppress(OSError):  # another process of ours was quicker
            if not file.stat().st_size:
                file.unlink()  # a power cut took what it said
                continue
            file.replace(file.with_name(f"{file.name.removesuffix(_BEGUN).lstrip('.')}.json"))
            count += 1
    return count


_BEGUN = ".begun"


def _folder(settings: Settings) -> Path:
    return settings.home.absolute() / "spool" / "audit"


def _name(at: datetime) -> str:
    # Time first, so that a listing is in order; the rest keeps two processes from one name.
    return f"{at:%Y%m%dT%H%M%S%f}-{uuid.uuid4().hex}"


def _row(
    at: datetime,
    act: str,
    outcome: str,
    who: str,
    target: str | None,
    detail: Mapping[str, Any] | None,
) -> dict[str, Any]:
    return {
        "at": at.isoformat(),
        "who": who,
        "act": act,
        "target": target,
        # As text: acts differ in what they say, and a column for each would change the table's
        # schema.
        "detail": json.dumps(detail, ensure_ascii=False) if detail is not None else None,
        "outcome": outcome,
    }
