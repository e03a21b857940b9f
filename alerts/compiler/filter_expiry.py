"""Filters that end on a day: after it their rules are compiled without them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

from alerts.compiler.sigma_to_predicate import Untranslatable


def require_unexpired(expires: str, document: Mapping[str, Any]) -> None:
    """Raises `Untranslatable` for a filter whose day is over, and for any other file with one."""
    if "filter" not in document:
        raise Untranslatable("headgate.expires: only a filter has an end", "take it out")
    try:
        over = date.fromisoformat(expires) <= datetime.now(UTC).date()
    except ValueError:
        raise Untranslatable(f"headgate.expires: '{expires}'", "a date: 2026-12-31") from None
    if over:
        # The rule then says what the filter hid, which is seen; a filter for ever is not.
        raise Untranslatable(f"it ended on {expires}", "renew its date, or take the file away")
