"""Small files that are there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from infra.storage.paths import Location


def write_whole(path: Location, content: str | bytes) -> None:
    """Write a small file so that a reader sees all of it or the old one, also after a power cut.

    Text as UTF-8.
    """
    if not isinstance(path, Path):
        # An object store shows an object only when all of it has arrived.
        path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("wb") as file:
        file.write(content.encode("utf-8") if isinstance(content, str) else content)
        file.flush()
        # Before the rename: a file system may note the new name first, and a power cut between the
        # two leaves an empty file under it.
        os.fsync(file.fileno())
    temporary.replace(path)


def write_each(content: Mapping[Location, str]) -> None:
    """Write small files, each whole; in a bucket side by side."""
    far = {file: text for file, text in content.items() if not isinstance(file, Path)}
    for file, text in content.items():
        if file not in far:
            write_whole(file, text)
    for file in list(far)[:1]:
        file.fs.pipe({key.path: text.encode("utf-8") for key, text in far.items()})


def write_private(path: Path, text: str) -> None:
    """Write a small file whole, readable by its owner alone whatever was there before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    # O_EXCL: neither a link nor a file that another user put there is taken. The mode is set as
    # the file is made, so that nobody can open it in between.
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    temporary.replace(path)
