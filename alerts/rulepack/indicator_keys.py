"""Keys of indicators: 64 bits, reckoned for whole columns at once.

The key of a text is a polynomial over its bytes, counted from its end, so one running sum gives
the key of every parent of every domain. Texts that meet under one key only cost a comparison:
whoever finds a key compares the values.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Keys: TypeAlias = np.ndarray[Any, np.dtype[np.uint64]]
Places: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

CHUNK_BYTES = 1 << 20
"""Text that is reckoned at once; what it takes is about thirty times as much memory."""

_GAMMA, _ONE, _TWO = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_WORD = (1 << 64) - 1
_BASE = np.uint64(0xD1342543DE82EF95)
SALTS = MappingProxyType({"domain": 1, "hash": 2, "url": 3, "email": 4})
"""Kinds of text; the same text of another kind has another key."""


def mixed(keys: Keys) -> Keys:
    """Bits spread over the word: the last step of SplitMix64 (Steele, Lea, Flood 2014)."""
    spread = (keys ^ (keys >> np.uint64(30))) * np.uint64(_ONE)
    spread = (spread ^ (spread >> np.uint64(27))) * np.uint64(_TWO)
    return spread ^ (spread >> np.uint64(31))


_BYTES = mixed(np.array([_GAMMA * n & _WORD for n in range(1, 257)], np.uint64))


def text_keys(texts: pa.Array, kind: str) -> Keys:
    """The key of each text; no text may be null."""
    return _keys(texts, kind, parents=False)[0]


def parent_keys(names: pa.Array) -> tuple[Keys, Places]:
    """(key, place of the name) of each name and of each of its parents."""
    return _keys(names, "domain", parents=True)


def _keys(texts: pa.Array, kind: str, parents: bool) -> tuple[Keys, Places]:
    # An array without values has no buffer; Arrow's offsets of none are a single zero.
    bounds = np.frombuffer(texts.buffers()[1] or b"\0\0\0\0", np.int32)
    bounds = bounds[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    # Halved and not looped: the pieces are slices of the same buffers, nothing is copied.
    if len(texts) > 1 and bounds[-1] - bounds[0] > CHUNK_BYTES:
        half = len(texts) // 2
        first = _keys(texts.slice(0, half), kind, parents)
        then = _keys(texts.slice(half), kind, parents)
        return np.concatenate([first[0], then[0]]), np.concatenate([first[1], then[1] + half])
    # A slice shares its parent's buffers, so only its own span of them is read.
    data = np.frombuffer(texts.buffers()[2] or b"", np.uint8)[bounds[0] : bounds[-1]]
    bounds = bounds - bounds[0]
    lengths = np.diff(bounds)
    owners = np.repeat(np.arange(len(texts)), lengths)
    ends = bounds[1:]
    sums = np.zeros(len(data) + 1, np.uint64)
    np.cumsum(
        _BYTES[data] * _powers(lengths)[ends[owners] - np.arange(len(data)) - 1], out=sums[1:]
    )
    starts, places = bounds[:-1], np.arange(len(texts))
    if parents:
        dots = np.flatnonzero(data == ord("."))
        starts, places = np.concatenate([starts, dots + 1]), np.concatenate([places, owners[dots]])
    # With length and kind: texts whose sums are equal by chance meet less often.
    long = (ends[places] - starts).astype(np.uint64)
    salted = long * np.uint64(_GAMMA) + np.uint64(SALTS[kind])
    return mixed((sums[ends[places]] - sums[starts]) ^ salted), places


def _powers(lengths: Places) -> Keys:
    """Powers of the base, as many as the longest text has bytes."""
    powers = np.full(int(lengths.max(initial=0)) + 1, _BASE, np.uint64)
    powers[0] = 1
    return np.multiply.accumulate(powers)


def address_words(packed: bytes) -> Keys:
    """Addresses of 16 bytes each, one after the other, as rows of (high, low) words."""
    return np.frombuffer(packed, ">u8").reshape(-1, 2).astype(np.uint64)


def network_keys(words: Keys, prefix: int) -> Keys:
    """The keys of the networks of `prefix` bits (of 128) around addresses."""
    mask = _WORD << 64 | _WORD
    mask = mask >> (128 - prefix) << (128 - prefix)
    high = words[:, 0] & np.uint64(mask >> 64)
    low = words[:, 1] & np.uint64(mask & _WORD)
    return mixed(mixed(high + np.uint64(_GAMMA)) ^ low ^ np.uint64(prefix * _GAMMA & _WORD))


def ascii_only(texts: pa.Array) -> bool:
    """Whether every text is plain ASCII."""
    return pc.all(pc.string_is_ascii(texts)).as_py() is not False
