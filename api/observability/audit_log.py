"""Who asked what: one file an act, which the driver folds into ops.audit."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from infra.config.settings import Settings
from infra.errors import Retryable
from infra.streaming.outbox import put

KEY = "api"
"""Who has the token of the settings; further keys have names of their own."""


def note(
    settings: Settings,
    act: str,
    outcome: str,
    *,
    who: str = KEY,
    target: str | None = None,
    detail: Mapping[str, Any] | None = None,
) -> None:
    """Leave one row of ops.audit in `<home>/spool/audit`; whole or not at all.

    `outcome`: ok, refused or failed. Raises `Retryable` when it cannot be
    written: an act that leaves no trace is not done.
    """
    at = datetime.now(UTC)
    row = {
        "at": at.isoformat(),
        "who": who,
        "act": act,
        "target": target,
        "detail": json.dumps(detail, ensure_ascii=False) if detail is not None else None,
        "outcome": outcome,
    }
    folder = settings.home.absolute() / "spool" / "audit"
    try:
        put(folder, f"{at:%Y%m%dT%H%M%S%f}-{uuid.uuid4().hex}", row)
    except OSError as error:
        raise Retryable(f"{folder}: cannot be written ({error.strerror})") from error
