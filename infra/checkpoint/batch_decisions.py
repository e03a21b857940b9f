"""What a batch decided before it ran, in `<checkpoints>/<job>/batches/<batch>.json`.

A retry reads it and writes the same rows again, so a bit that turned in it must be seen: the last
key is a checksum of all others. A version of ours that knows no checksum writes what it adds
behind it, whereupon it no longer stands last and counts no more.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infra.storage.atomic_files import write_whole
from infra.storage.checksums import Damaged, damaged, json_object

SEAL = "crc32"


def decisions_file(folder: Path, number: int) -> Path:
    """Where a checkpoint keeps what its batch of that number decided."""
    return folder / "batches" / f"{number}.json"


def write_decision(folder: Path, number: int, decisions: Mapping[str, Any]) -> None:
    """Write what a batch decided; values that JSON can hold."""
    # The checksum is written last: a key behind it shows that a version wrote that knows none.
    text = json.dumps({**decisions, SEAL: _sum(decisions)})
    write_whole(decisions_file(folder, number), text)


def decided(folder: Path, number: int) -> dict[str, Any]:
    """What a batch decided. Raises `Fatal` for a damaged file, `FileNotFoundError` for none."""
    file = decisions_file(folder, number)
    try:
        # A byte that is no UTF-8 is damage too: replaced, it shows in the checksum.
        return decisions_in(file.read_text("utf-8", "replace"))
    except Damaged as error:
        remedy = f"restore {folder} from a backup that is not older than the tables"
        raise damaged(file, error, remedy) from None


def decisions_in(text: str) -> dict[str, Any]:
    """The decisions of such a file, without their checksum. Raises `Damaged`."""
    parsed_tree = json_object(text)
    last = next(reversed(parsed_tree), None)
    value = parsed_tree.pop(SEAL, None)
    # Where it is not last, a version that knows no checksum wrote after it: it proves nothing.
    if last == SEAL and value != _sum(parsed_tree):
        raise Damaged("its checksum says otherwise")
    return parsed_tree


def _sum(decisions: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(decisions).encode())


FORMER_DIGESTS = "former_digests"
"""The decision that keeps the digests of offsets that were written anew since a batch was planned:
tables that have it already know it by one of these."""


def forget_digest(folder: Path, number: int, former: str | None = None) -> None:
    """Let the offsets of a batch be written anew (`infra.streaming.checkpoint_sources`).

    `former`: their digest until now, where the batch is not done: tables may have it already.
    """
    known = decided(folder, number) if decisions_file(folder, number).exists() else {}
    decision = {name: what for name, what in known.items() if name != "digest"}
    if former is not None:
        before = decision.get(FORMER_DIGESTS, [])
        decision[FORMER_DIGESTS] = [*(each for each in before if each != former), former]
    if decision != known:
        write_decision(folder, number, decision)
