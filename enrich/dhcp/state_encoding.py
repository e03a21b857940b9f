"""The state of a bucket of addresses as bytes: a name, a version, and what tells damage."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from enrich.dhcp.tracker_state import AddressState, TrackerBucket, TrackerLimits
from infra.errors import Fatal

_T = TypeVar("_T")

MAGIC = b"headgate.sessions"
WHOLE = 1
"""Version of a state that is one blob a bucket; that of `enrich.dhcp.state_cells` lies in cells."""


class _Whole(msgspec.Struct, array_like=True):
    """The state of a bucket as one blob."""

    known_at_us: int | None
    finished_us: int | None
    swept_us: int
    last_rev: int
    addresses: list[AddressState]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Whole)


def encode_bucket(state: TrackerBucket) -> bytes:
    """The state as one blob, version `WHOLE`: a name, a version byte, MessagePack."""
    addresses = [
        # Without `due`: the wheel is made anew when the blob is read.
        (each.scope, each.ip, each.base, each.lines, each.painted_us)
        for each in state.addresses.values()
    ]
    head = (state.known_at_us, state.finished_us, state.swept_us, state.last_rev)
    return MAGIC + bytes([WHOLE]) + _encoder.encode((*head, addresses))


def decode_bucket(blob: bytes, limits: TrackerLimits) -> TrackerBucket:
    """The state `encode` wrote. Raises `Fatal` for what this release cannot read."""
    kept: _Whole = opened(blob, WHOLE, _decoder)
    state = TrackerBucket(limits)
    state.known_at_us, state.finished_us = kept.known_at_us, kept.finished_us
    state.swept_us, state.last_rev = kept.swept_us, kept.last_rev
    for address in kept.addresses:
        state.addresses[address.scope, address.ip] = address
        state.enter(address, address.timeline())
    return state


def opened(blob: bytes, version: int, decoder: msgspec.msgpack.Decoder[_T]) -> _T:
    """What a blob with name and version holds; `Fatal` when it is not one of ours, or damaged."""
    head = len(MAGIC)
    if blob[:head] != MAGIC or len(blob) <= head:
        raise Fatal(
            f"job sessions: its state starts with {blob[:head]!r}, not with {MAGIC!r}; "
            "the checkpoint belongs to something else"
        )
    if blob[head] != version:
        raise Fatal(
            f"job sessions: its state has version {blob[head]}, this release reads {version}; "
            "'headgate rebuild sessions' of the newer release writes either"
        )
    return intact(blob[head + 1 :], decoder)


def intact(blob: bytes, decoder: msgspec.msgpack.Decoder[_T]) -> _T:
    """What a blob without a name holds; `Fatal` when it is damaged."""
    try:
        return decoder.decode(blob)
    except msgspec.MsgspecError as error:
        raise Fatal(
            f"job sessions: its state cannot be read ({error}); restore the checkpoint, or "
            "make it anew from the tables with 'headgate rebuild sessions'"
        ) from error
