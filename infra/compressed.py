"""Bytes made smaller with zstd: eight bytes say how many they were, the rest is a zstd frame."""

from __future__ import annotations

import pyarrow as pa

_SIZE = 8


def compressed(plain: bytes) -> bytes:
    """`plain` as `expanded` reads it; equal bytes give equal bytes."""
    packed: bytes = pa.compress(plain, codec="zstd", asbytes=True)
    return len(plain).to_bytes(_SIZE, "big") + packed


def expanded(blob: bytes) -> bytes:
    """What `compressed` was given. Raises `OSError` for what it never wrote."""
    size = int.from_bytes(blob[:_SIZE], "big")
    plain: bytes = pa.decompress(blob[_SIZE:], decompressed_size=size, codec="zstd", asbytes=True)
    return plain
