"""Times as people type them into an address: -24h, now, today, yesterday, a date, an instant."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from infra.errors import Usage

_BACK = re.compile(r"-(\d{1,6})([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def earliest(name: str, text: str, now: datetime) -> datetime | None:
    """The instant that a word means, a day being its beginning in UTC; None for none.

    Raises `Usage` that names the parameter.
    """
    word = text.strip().lower()
    if not word:
        return None
    today = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    fixed = {"now": now, "today": today, "yesterday": today - timedelta(days=1)}
    if word in fixed:
        return fixed[word]
    if back := _BACK.fullmatch(word):
        return now - timedelta(**{_UNITS[back[2]]: int(back[1])})
    try:
        instant = datetime.fromisoformat(text.strip().replace(" UTC", "Z"))
    except ValueError:
        raise Usage(
            f"{name}: '{text}' is no time; write -24h, yesterday, 2026-11-20 or "
            "2026-11-20T14:05:07Z"
        ) from None
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)
