"""Small files that are there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from infra.location import Location


def write_whole(path: Location, content: str | bytes) -> None:
    """Write a small file so that a reader sees all of it or the old one, also after a power cut.

    Text as UTF-8.
    """
    if not isinstance(path, Path):
        path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("wb") as file:
        file.write(content.encode("utf-8") if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def write_private(path: Path, text: str) -> None:
    """Write a small file whole, readable by its owner alone whatever was there before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    temporary.replace(path)
