"""The bytes of a record, for people."""

from __future__ import annotations

from typing import Any


def raw_text(raw: Any) -> str:
    """Bytes as text; what is no UTF-8 becomes U+FFFD, so `hex_dump` alone has all of it."""
    return bytes(raw or b"").decode("utf-8", "replace")


def hex_dump(raw: bytes, longest: int = 4096) -> str:
    """Bytes as people read them: place, hexadecimal, and what is printable."""
    lines = []
    for place in range(0, min(len(raw), longest), 16):
        row = raw[place : place + 16]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{place:06x}  {row.hex(' '):<47}  {text}")
    if len(raw) > longest:
        lines.append(f"and {len(raw) - longest:,} more bytes")
    return "\n".join(lines)
