"""Findings of a correlation that only a late one can still concern: packed, not decoded.

    time   |<------ LATENESS ------>|<-- SETTLE -->|<-- timespan -->| newest
           [cold][cold][cold][cold] .......... entries .............

A correlation remembers findings for as long as one may come late. Those that lie in no
window which may still end are most of them, and each batch would read and write all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from alerts.correlation.entry import CorrelationEntry
from infra.storage.compression import compressed, expanded

ENOUGH = 20_000
"""Findings that are worth a pack of their own; a correlation with fewer has none."""


class PackedEntries(msgspec.Struct, gc=False):
    """Packed entries by group, all from `since` to `until`, microseconds."""

    since: int
    until: int
    packed: bytes


def pack_history(entries: Mapping[str, Sequence[CorrelationEntry]]) -> PackedEntries:
    """Entries by group, none of them empty and each in order of time, as a pack."""
    return PackedEntries(
        since=min(some[0].time for some in entries.values()),
        until=max(some[-1].time for some in entries.values()),
        packed=compressed(msgspec.msgpack.encode(entries)),
    )


def unpack_history(cold: PackedEntries) -> dict[str, list[CorrelationEntry]]:
    """What `packed` was given."""
    return msgspec.msgpack.decode(expanded(cold.packed), type=dict[str, list[CorrelationEntry]])
