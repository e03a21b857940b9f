"""Ids as people give them: whole, or their first characters where no other id begins so."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from infra.errors import Usage

SHORTEST_ID = 4
"""Fewer characters of an id name nothing."""

_NAMED = 4
"""So many of the ids that may be meant are told."""


def id_begun_by(
    kind: str, given: str, ids: Collection[str], least: int = SHORTEST_ID
) -> str | None:
    """The id that is `given`, or else the only one that begins so; None where there is none.

    `kind`: what has these ids, as "alert". `least`: fewer characters begin nothing. Raises `Usage`
    where several begin so.
    """
    if given in ids:
        return given
    begun = sorted(each for each in ids if each.startswith(given)) if len(given) >= least else []
    if len(begun) > 1:
        raise several_ids(kind, given, begun)
    return begun[0] if begun else None


def several_ids(kind: str, given: str, ids: Sequence[str]) -> Usage:
    """The refusal of first characters that these ids share."""
    named = ", ".join(ids[:_NAMED])
    return Usage(f"{kind} '{given}' may be several ({named}); give more of its id")
