"""A bucket's state in cells, of which a batch reads and writes only those it needs.

A bucket has a header, a cell for each address, and cells with the wheel: which addresses are
due, by slot, in chunks that are written once and read once. What a batch costs is so many
addresses as it has lines for, and as are due; how many others there are does not matter.

The header carries the version of all cells of its bucket. Upgrade and rollback write a new
checkpoint (`enrich.dhcp.checkpoint_rebuild`); nothing is converted while the job runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import msgspec

from enrich.dhcp.lease_rules import LeaseEvent
from enrich.dhcp.state_encoding import MAGIC, intact, opened
from enrich.dhcp.tracker_state import AddressState, Key, TrackerBucket, TrackerLimits

VERSION = 2


class _Cells(Protocol):
    """Named blobs of one bucket."""

    def get(self, name: str) -> bytes | None:
        """The blob, None when there is none."""

    def put(self, name: str, blob: bytes) -> None:
        """Write or replace it."""

    def drop(self, name: str) -> None:
        """Remove it."""


class _Header(msgspec.Struct, array_like=True):
    """What a bucket knows as a whole. `chunks`: how many the wheel has of each slot."""

    known_at_us: int | None = None
    finished_us: int | None = None
    swept_us: int = 0
    last_rev: int = 0
    chunks: dict[int, int] = {}


_encoder = msgspec.msgpack.Encoder()
_header = msgspec.msgpack.Decoder(_Header)
_address = msgspec.msgpack.Decoder(AddressState)
_keys = msgspec.msgpack.Decoder(list[Key])

_HEADER = "header"


def address_cell(scope: str, ip: str) -> str:
    """Name of an address's cell."""
    return f"{scope}\x1f{ip}"


def read_address(blob: bytes) -> AddressState:
    """What an address's cell holds."""
    return intact(blob, _address)


def write_header(header: _Header) -> bytes:
    """A header as its cell holds it, with the name and the version of the state."""
    return MAGIC + bytes([VERSION]) + _encoder.encode(header)


def read_header(blob: bytes) -> _Header:
    """What a header's cell holds. Raises `Fatal` for another version's."""
    return opened(blob, VERSION, _header)


class Kept:
    """One bucket, as far as a batch needs it: `load`, let `state` advance, then `save`."""

    def __init__(
        self, limits: TrackerLimits, header: _Cells, addresses: _Cells, wheel: _Cells
    ) -> None:
        self._cells = header, addresses, wheel
        blob = header.get(_HEADER)
        self._header = read_header(blob) if blob is not None else _Header()
        self._found: dict[Key, bytes] = {}
        self.state = TrackerBucket(limits)
        self.state.known_at_us = self._header.known_at_us
        self.state.finished_us = self._header.finished_us
        self.state.swept_us, self.state.last_rev = self._header.swept_us, self._header.last_rev

    def load(self, lines: Iterable[LeaseEvent], finished_us: Iterable[int]) -> TrackerBucket:
        """The state with all addresses that these lines and this time may touch."""
        wanted: dict[Key, None] = {}
        newest = max(finished_us, default=0)
        for line in lines:
            wanted[line.scope, line.ip] = None
            newest = max(newest, line.received_us)
        # No later slot can be due: stream time goes no further than the newest arrival.
        self._turn(newest // self.state.limits.sweep_us)
        for keys in self.state.wheel.values():
            wanted |= dict.fromkeys(keys)
        _, addresses, _ = self._cells
        for key in wanted:
            blob = addresses.get(address_cell(*key))
            if blob is not None:
                self._found[key] = blob
                self.state.addresses[key] = read_address(blob)
        return self.state

    def _turn(self, until: int) -> None:
        """Take all slots up to one out of the wheel's cells."""
        _, _, wheel = self._cells
        for slot in [slot for slot in self._header.chunks if slot <= until]:
            for number in range(self._header.chunks.pop(slot)):
                blob = wheel.get(f"{slot}/{number}")
                if blob is not None:
                    keys = intact(blob, _keys)
                    self.state.wheel.setdefault(slot, []).extend(keys)
                    wheel.drop(f"{slot}/{number}")

    def save(self) -> None:
        """Write what has changed."""
        header, addresses, wheel = self._cells
        for key, address in self.state.addresses.items():
            blob = _encoder.encode(address)
            # Most addresses stay as they were, and each write is a call over a socket to the JVM.
            if blob != self._found.get(key):
                addresses.put(address_cell(*key), blob)
        for key in self._found.keys() - self.state.addresses.keys():
            addresses.drop(address_cell(*key))
        chunks = self._header.chunks
        for slot, keys in self.state.wheel.items():
            wheel.put(f"{slot}/{chunks.get(slot, 0)}", _encoder.encode(keys))
            chunks[slot] = chunks.get(slot, 0) + 1
        state = self.state
        lines = (state.known_at_us, state.finished_us, state.swept_us, state.last_rev)
        header.put(_HEADER, write_header(_Header(*lines, chunks)))

    def sow(self, whole: TrackerBucket) -> None:
        """Take over a bucket as a whole, where there was none, and write it."""
        self.state = whole
        self.save()
