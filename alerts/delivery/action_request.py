"""What a person asks of job `alert`: a row of gold.alert_action, left as a file.

The driver folds the files into the table, and the job reads them with its other
rows, so a request takes effect once, in a batch that can be repeated.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

import msgspec

from infra.config.settings import Settings
from infra.errors import Retryable
from infra.process.os_user import acting_user
from infra.streaming.outbox import put_row

_Row = dict[str, Any]


def request_action(
    settings: Settings, action: str, alert_id: str, rule_id: str, **more: Any
) -> _Row:
    """Leave a request; returns it, a row of gold.alert_action.

    `more`: value, comment, of an old alert the body of its newest revision as JSON (`alert`), and
    of a suppression entity, fields and expires_at (a datetime). Who asks and what goes to
    ops.audit. Raises `Retryable` when the spool cannot be written.
    """
    given = {k: v.isoformat() if isinstance(v, datetime) else v for k, v in more.items()}
    who, instant = acting_user(), datetime.now(UTC).isoformat()
    request: _Row = {
        "action_id": uuid.uuid4().hex,
        "alert_id": alert_id,
        "rule_id": rule_id,
        "action": action,
        "value": None,
        "comment": None,
        "who": who,
        "at": instant,
        **given,
    }
    decoded = msgspec.json.encode({k: v for k, v in given.items() if k != "alert"}).decode()
    audited = {
        "at": instant,
        "who": who,
        "act": f"alert.{action}",
        "target": alert_id,
        "outcome": "ok",
    }
    _leave(settings, request, audited | {"detail": decoded})
    return request


def _leave(settings: Settings, request: _Row, audited: _Row) -> None:
    spool = settings.home.absolute() / "spool"
    try:
        put_row(spool / "audit", f"{request['action']}-{request['action_id']}", audited)
        put_row(spool / "alert_action", request["action_id"], request)
    except OSError as error:
        raise Retryable(f"{spool}: cannot be written ({error.strerror})") from error
