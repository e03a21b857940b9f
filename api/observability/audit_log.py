"""Who asked what: one file an act, which the driver folds into ops.audit."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from infra.config.settings import Settings
from infra.errors import Retryable
from infra.streaming.outbox import put_row

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
    row = {
        "at": instant.isoformat(),
        "who": who,
        "act": act,
        "target": target,
        "detail": json.dumps(detail, ensure_ascii=False) if detail is not None else None,
        "outcome": outcome,
    }
    folder = settings.home.absolute() / "spool" / "audit"
    try:
        put_row(folder, f"{instant:%Y%m%dT%H%M%S%f}-{uuid.uuid4().hex}", row)
    except OSError as error:
        raise Retryable(f"{folder}: cannot be written ({error.strerror})") from error
