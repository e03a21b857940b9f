"""Spark's log of offsets: which batches a checkpoint has, and how far each read its inputs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

from infra.storage.checksums import Damaged, logged


def digest_of(offsets: bytes) -> str:
    """What tells the offsets of a batch from others."""
    return hashlib.sha256(offsets).hexdigest()[:16]


def numbers(folder: Path, suffix: str = "") -> list[int]:
    """The numbers that a checkpoint's folder has files of."""
    if not folder.is_dir():
        return []
    # Checksums and unfinished files of Hadoop lie here too; their names are no numbers.
    names = [p.name.removesuffix(suffix) for p in folder.iterdir() if p.name.endswith(suffix)]
    return [int(name) for name in names if name.isdigit()]


NO_PLACE = "-"
"""How Spark writes that a source was not read yet."""


Input = str | None
"""The id of the table that is read; None for what is no table, such as Kafka."""


def offset_lines(file: Path) -> list[str]:
    """The lines of an offsets file that say how far each input was read.

    Raises `Damaged`, with its name: to read nothing and to be damaged are not the same.
    """
    try:
        # The first two lines are the form's version and the metadata with the watermark.
        return logged(file, 3)[2:]
    except Damaged as error:
        raise Damaged(f"{file} is damaged ({error})") from None


def read_up_to(file: Path) -> Iterator[tuple[str, int]]:
    """Of each Delta table in an offsets file its id, and the first version that is not read whole.

    Source of the form: `DeltaSourceOffset` of Delta Lake.
    """
    for line in offset_lines(file):
        if (identity := _table_of(line)) is not None:
            yield identity, int(json.loads(line)["reservoirVersion"])


def _table_of(line: str) -> Input:
    decoded = json.loads(line) if line.startswith("{") else {}
    identity = decoded.get("reservoirId")
    return None if identity is None else str(identity)
