"""The state of a bucket of addresses as one blob, of which a batch unpacks only what it needs.

A blob is a name, a version byte and MessagePack: what the bucket knows as a whole, and its
addresses in chunks by a hash. A chunk is compressed and says when one of its addresses is due
first. So a batch unpacks and packs the chunks that its lines touch or that are due; the others it
hands on as they are, and what is handed on is small.

Blobs of the release before (version `WHOLE`, one list of addresses) are read as well; what is
written is always of version `VERSION`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from enrich.dhcp.lease_rules import LeaseEvent
from enrich.dhcp.tracker_state import AddressState, Key, TrackerBucket, TrackerLimits
from infra.errors import Fatal

_T = TypeVar("_T")

MAGIC = b"headgate.sessions"
WHOLE, CELLS, VERSION = 1, 2, 3
"""Versions of the state: of the release before as a blob and in cells, and of this one."""

CHUNK = 32
"""About so many addresses lie in a chunk: a line unpacks that many, and each chunk costs a batch
a little whether it is touched or not."""


class _Whole(msgspec.Struct, array_like=True):
    """A blob of version `WHOLE`."""

    known_at_us: int | None
    finished_us: int | None
    swept_us: int
    last_rev: int
    addresses: list[AddressState]


class _Chunk(msgspec.Struct, array_like=True, frozen=True):
    """Some addresses of a bucket. `due`: the first slot in which one of them is."""

    due: int
    count: int
    packed: bytes


class _Chunked(msgspec.Struct, array_like=True):
    """A blob of version `VERSION`. `limits` are those by which it is said what is due."""

    known_at_us: int | None
    finished_us: int | None
    swept_us: int
    last_rev: int
    limits: TrackerLimits
    chunks: list[_Chunk]


_NONE = _Chunk(0, 0, b"")

_encoder = msgspec.msgpack.Encoder()
_whole = msgspec.msgpack.Decoder(_Whole)
_chunked = msgspec.msgpack.Decoder(_Chunked)
_addresses = msgspec.msgpack.Decoder(list[AddressState])


class StoredBucket:
    """One bucket, as far as a batch needs it: `load`, let the state advance, then `save`."""

    def __init__(self, limits: TrackerLimits, blob: bytes | None = None) -> None:
        """Open a blob; None: a bucket that remembers nothing. Raises `Fatal` for what this
        release cannot read."""
        self._state = TrackerBucket(limits)
        self._chunks = [_NONE]
        self._loaded = {0}
        if blob is None:
            return
        if _version(blob) == WHOLE:
            kept = _read(blob, _whole)
            self._know(kept)
            for address in kept.addresses:
                self._enter(address)
            return
        stored = _read(blob, _chunked)
        self._know(stored)
        self._chunks, self._loaded = stored.chunks, set()
        if stored.limits != limits:
            # What is due when depends on them.
            for address in self.load_all().addresses.values():
                address.due = 0
                self._enter(address)

    def load(self, lines: Sequence[LeaseEvent], finished_us: Sequence[int]) -> TrackerBucket:
        """The state with all addresses that these lines and this time may touch."""
        state = self._state
        slots = {self._place((line.scope, line.ip)) for line in lines}
        newest = max((*finished_us, *(line.received_us for line in lines)), default=0)
        # Stream time goes no further than ingest has finished (`TrackerBucket.advance`).
        finished = max((*finished_us, state.finished_us or 0))
        until = min(newest, finished) if finished else newest
        if until >= state.swept_us + state.limits.sweep_us:
            slot = until // state.limits.sweep_us
            due = (n for n, chunk in enumerate(self._chunks) if chunk.count and chunk.due <= slot)
            slots.update(due)
        self._load(slots)
        return state

    def load_all(self) -> TrackerBucket:
        """The state with all its addresses."""
        self._load(range(len(self._chunks)))
        return self._state

    def save(self) -> bytes:
        """The blob after what the state has taken in."""
        state = self._state
        rest = sum(c.count for n, c in enumerate(self._chunks) if n not in self._loaded)
        number = _fitting(len(self._chunks), len(state.addresses) + rest)
        if number != len(self._chunks):
            self.load_all()
            self._chunks, self._loaded = [_NONE] * number, set(range(number))
        touched: dict[int, list[AddressState]] = {n: [] for n in self._loaded}
        for key, address in state.addresses.items():
            touched[self._place(key)].append(address)
        for n, addresses in touched.items():
            self._chunks[n] = _pack(addresses)
        head = (state.known_at_us, state.finished_us, state.swept_us, state.last_rev)
        return MAGIC + bytes([VERSION]) + _encoder.encode((*head, state.limits, self._chunks))

    def _know(self, stored: _Whole | _Chunked) -> None:
        state = self._state
        state.known_at_us, state.finished_us = stored.known_at_us, stored.finished_us
        state.swept_us, state.last_rev = stored.swept_us, stored.last_rev

    def _enter(self, address: AddressState) -> None:
        self._state.addresses[address.scope, address.ip] = address
        self._state.enter(address, address.timeline())

    def _load(self, numbers: Iterable[int]) -> None:
        state = self._state
        for n in set(numbers) - self._loaded:
            self._loaded.add(n)
            for address in _unpack(self._chunks[n]):
                key = (address.scope, address.ip)
                state.addresses[key] = address
                state.wheel.setdefault(address.due, []).append(key)

    def _place(self, key: Key) -> int:
        # Not `hash`, which differs between two processes.
        return zlib.crc32("\x1f".join(key).encode()) % len(self._chunks)


def decode_bucket(blob: bytes, limits: TrackerLimits) -> TrackerBucket:
    """All of a bucket. Raises `Fatal` for what this release cannot read."""
    return StoredBucket(limits, blob).load_all()


def encode_bucket(state: TrackerBucket) -> bytes:
    """All of a bucket as a blob, whose addresses may not be in the wheel yet."""
    stored = StoredBucket(state.limits)
    stored._know(_Whole(state.known_at_us, state.finished_us, state.swept_us, state.last_rev, []))
    for address in state.addresses.values():
        stored._enter(address)
    return stored.save()


def _fitting(now: int, count: int) -> int:
    """How many chunks so many addresses have, where there are `now`."""
    # With room to both sides, as all chunks are written anew when their number changes.
    if count <= 2 * CHUNK * now and (now == 1 or count >= CHUNK // 4 * now):
        return now
    return 1 << (count // CHUNK).bit_length()


def _pack(addresses: list[AddressState]) -> _Chunk:
    if not addresses:
        return _NONE
    # Level 1: the others win little on what is this alike, and take longer.
    packed = zlib.compress(_encoder.encode(addresses), 1)
    return _Chunk(min(address.due for address in addresses), len(addresses), packed)


def _unpack(chunk: _Chunk) -> list[AddressState]:
    if not chunk.count:
        return []
    try:
        return _addresses.decode(zlib.decompress(chunk.packed))
    except (zlib.error, msgspec.MsgspecError) as error:
        raise _damaged(error) from error


def _version(blob: bytes) -> int:
    """The version of a blob; `Fatal` when it is not one of ours, or of another release."""
    head = len(MAGIC)
    if blob[:head] != MAGIC or len(blob) <= head:
        raise Fatal(
            f"job sessions: its state starts with {blob[:head]!r}, not with {MAGIC!r}; "
            "the checkpoint belongs to something else"
        )
    if blob[head] not in (WHOLE, VERSION):
        raise Fatal(
            f"job sessions: its state has version {blob[head]}, this release reads {WHOLE} and "
            f"{VERSION}; 'headgate rebuild sessions' makes it anew, nothing is lost"
        )
    return blob[head]


def _read(blob: bytes, decoder: msgspec.msgpack.Decoder[_T]) -> _T:
    try:
        return decoder.decode(memoryview(blob)[len(MAGIC) + 1 :])
    except msgspec.MsgspecError as error:
        raise _damaged(error) from error


def _damaged(error: Exception) -> Fatal:
    return Fatal(
        f"job sessions: its state cannot be read ({error}); restore the checkpoint, or "
        "make it anew from the tables with 'headgate rebuild sessions'"
    )
