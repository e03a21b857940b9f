"""Bytes made smaller with zstd, as `checksum (4) | size (8) | zstd frame`, numbers big-endian.

The checksum is the CRC-32 of all that follows it: a frame alone may be read wrong unnoticed.
"""

from __future__ import annotations

import zlib

import pyarrow as pa

_SUM, _SIZE = 4, 8


def compressed(plain: bytes) -> bytes:
    """`plain` as `expanded` reads it; equal bytes give equal bytes."""
    packed: bytes = pa.compress(plain, codec="zstd", asbytes=True)
    body = len(plain).to_bytes(_SIZE, "big") + packed
    return zlib.crc32(body).to_bytes(_SUM, "big") + body


def expanded(blob: bytes) -> bytes:
    """What `compressed` was given. Raises `ValueError` for anything that it did not make."""
    message, body = blob[:_SUM], blob[_SUM:]
    if len(body) < _SIZE or zlib.crc32(body).to_bytes(_SUM, "big") != message:
        raise ValueError("its checksum is another")
    size = int.from_bytes(body[:_SIZE], "big")
    # The size stands in front, as Arrow must know how much it makes of a frame.
    plain: bytes = pa.decompress(body[_SIZE:], decompressed_size=size, codec="zstd", asbytes=True)
    return plain
