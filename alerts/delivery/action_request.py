"""What a person asks of job `alert`: a row of gold.alert_action, left as a file.

The driver folds the files into the table, and the job reads them with its other
rows, so a request takes effect once, in a batch that can be repeated.
"""

from __future__ import annotations

import glob
import json
import uuid
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from alerts.domain.verdict import verdict_of
from infra.config.settings import Settings
from infra.errors import Retryable
from infra.process.os_user import acting_user
from infra.streaming.outbox import put_row

_Row = dict[str, Any]


def request_action(
    settings: Settings,
    action: str,
    alert_id: str,
    rule_id: str,
    *,
    who: str | None = None,
    asked_at: datetime | None = None,
    **more: Any,
) -> _Row:
    """Leave a request; returns it, a row of gold.alert_action.

    `more`: value, comment, of an old alert the body of its newest revision as JSON (`alert`), and
    of a suppression entity, fields and expires_at (a datetime). `who` asks: by default the
    account of this process. Who asks and what goes to ops.audit. Raises `Retryable` when the
    outbox cannot be written, `Usage` for a verdict that is none.
    """
    if action in ("close", "verdict") and more.get("value") is not None:
        # Checked before it is left: job `alert` could only refuse it much later.
        more["value"] = verdict_of(more["value"])
    given = {k: v.isoformat() if isinstance(v, datetime) else v for k, v in more.items()}
    name, instant = who or acting_user(), (asked_at or datetime.now(UTC)).isoformat()
    request: _Row = {
        "action_id": uuid.uuid4().hex,
        "alert_id": alert_id,
        "rule_id": rule_id,
        "action": action,
        "value": None,
        "comment": None,
        "who": name,
        "at": instant,
        **given,
    }
    # The body of an alert would only fill the audit; it is in gold.alert.
    detail = msgspec.json.encode({k: v for k, v in given.items() if k != "alert"}).decode()
    audited = {"at": instant, "who": name, "act": f"alert.{action}", "target": alert_id}
    _leave(settings, request, audited | {"outcome": "ok", "detail": detail})
    return request


def waiting_requests(settings: Settings, alert_id: str | None = None) -> list[_Row]:
    """Requests that no driver has folded into gold.alert_action yet, oldest first.

    `alert_id`: only those about this alert. Read the table after this, not before: what is
    folded in between is then seen twice and never missed.
    """
    folder = settings.home.absolute() / "spool" / "alert_action"
    rows = [row for row in _files(folder, alert_id) if alert_id in (None, row.get("alert_id"))]
    return sorted(rows, key=lambda row: (str(row.get("at")), str(row.get("action_id"))))


def _files(folder: Path, alert_id: str | None) -> Iterator[_Row]:
    name = "*.json" if alert_id is None else f"{glob.escape(_file_name(alert_id))}*.json"
    # A round of the driver moves files into a folder of its own, and removes it once written.
    for file in [*folder.glob(name), *folder.glob(f"round-*/{name}")]:
        # The driver may move or remove a file while it is read.
        with suppress(OSError, ValueError):
            row = json.loads(file.read_bytes())
            if isinstance(row, dict):
                yield row


def _file_name(alert_id: str) -> str:
    """The beginning of the names of an alert's files, so that they are found by name."""
    # An id may come from a URL; as a file name it must not lead out of the folder.
    plain = "".join(c if c.isascii() and c.isalnum() else "-" for c in alert_id)
    return f"{plain[:64]}."


def _leave(settings: Settings, request: _Row, audited: _Row) -> None:
    spool = settings.home.absolute() / "spool"
    name = f"{_file_name(request['alert_id'])}{request['action_id']}"
    try:
        # The audit first: an act that leaves no trace is not done.
        put_row(spool / "audit", f"{request['action']}-{request['action_id']}", audited)
        put_row(spool / "alert_action", name, request)
    except OSError as error:
        raise Retryable(f"{spool}: cannot be written ({error.strerror})") from error
