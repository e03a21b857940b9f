"""Instants as people write them on the command line."""

from __future__ import annotations

from datetime import datetime

from infra.errors import Usage


def instant(option: str, text: str, alternative: str = "") -> datetime:
    """An instant with its zone; raises `Usage` that names the option and shows how to write one.

    `alternative`: what else the option takes, for that sentence.
    """
    try:
        instant_read = datetime.fromisoformat(text)
    except ValueError:
        raise Usage(
            f"{option} {text}: write an instant such as 2026-11-20T00:00:00Z{alternative}"
        ) from None
    if instant_read.tzinfo is None:
        raise Usage(f"{option} {text}: name the zone, such as {text}Z")
    return instant_read


def instant_or_none(option: str, text: str | None) -> datetime | None:
    """The same of an option that may be left out."""
    return None if text is None else instant(option, text)
