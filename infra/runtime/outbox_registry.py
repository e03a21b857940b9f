"""The tables whose rows wait in an outbox: each package registers its own.

Apart from `infra.streaming.outbox`, so that a command that only registers loads no Arrow.
"""

from __future__ import annotations

_OUTBOXES: dict[str, str] = {}


def register_outboxes(**tables: str) -> None:
    """Make outboxes known: the name of each folder, and of the table that its rows go into."""
    _OUTBOXES.update(tables)


def outboxes() -> dict[str, str]:
    """The names of the tables with an outbox, by that of its folder."""
    return dict(_OUTBOXES)
