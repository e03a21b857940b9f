"""The rows of ops.audit as a chain: each carries a digest over itself and the one before it.

The driver, which alone writes the table, numbers the rows of a round and chains them. A row that
is changed, left out, put in or moved later breaks the chain from there on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from infra.storage.state_file import StateFile

_ROW = ("at", "who", "act", "target", "detail", "outcome")
_START = ""


@dataclass(frozen=True)
class ChainHead:
    """The end of a chain, as the driver keeps it in `<home>/audit.chain`.

    `round_name`: the round that made it, with the end before (`before_seq`, `before_digest`), so
    that a round that is written again after a crash gets the same numbers.
    """

    chain: str
    seq: int = 0
    digest: str = _START
    round_name: str = ""
    before_seq: int = 0
    before_digest: str = _START


@dataclass(frozen=True)
class ChainLink:
    """A row of ops.audit as it is checked."""

    chain: str
    seq: int
    digest: str
    row: Mapping[str, Any]


@dataclass(frozen=True)
class ChainFault:
    """The first link that does not hold."""

    chain: str
    seq: int
    what: str


def head_file(home: Path) -> StateFile[ChainHead]:
    """Where the driver of a home keeps the end of its chain."""
    remedy = "'headgate audit verify' says how far the table's chain holds; then remove the file"
    return StateFile(home.absolute() / "audit.chain", ChainHead, remedy=remedy)


def chained(
    rows: Sequence[Mapping[str, Any]], head: ChainHead, round_name: str
) -> tuple[list[dict[str, Any]], ChainHead]:
    """The rows of a round with their links, in order of time, and the end of the chain then."""
    seq, digest = head.seq, head.digest
    if head.round_name == round_name:
        seq, digest = head.before_seq, head.before_digest
    before_seq, before_digest = seq, digest
    linked = []
    # A round that is written again must get the same numbers, in whatever order its files
    # are listed then.
    for row in sorted(rows, key=lambda row: (row["at"], _canonical(row))):
        seq += 1
        digest = link_digest(head.chain, seq, digest, row)
        linked.append({**row, "chain": head.chain, "seq": seq, "digest": digest})
    return linked, replace(
        head,
        seq=seq,
        digest=digest,
        round_name=round_name,
        before_seq=before_seq,
        before_digest=before_digest,
    )


def link_digest(chain: str, seq: int, before: str, row: Mapping[str, Any]) -> str:
    """What a row's `digest` is, from that of the row before it."""
    # As a list: names glued together could be cut elsewhere and still give the same text. ASCII, as
    # half a surrogate has no bytes in UTF-8.
    text = json.dumps([chain, seq, before, _canonical(row)], ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def first_fault(links: Iterable[ChainLink], heads: Mapping[str, ChainHead]) -> ChainFault | None:
    """The first link that does not hold; None where all do.

    `links` in order of chain and number. A chain may begin late, since rows expire; its first row
    is then taken as it is. `heads`: the ends that are known elsewhere, so that rows which were cut
    off the end are missed.
    """
    ends: dict[str, ChainLink] = {}
    for link in links:
        last = ends.get(link.chain)
        if last is None:
            previous = _START if link.seq == 1 else None
        elif link.seq == last.seq and link.digest == last.digest:
            continue  # the same act, left twice by a batch that was tried again
        elif link.seq != last.seq + 1:
            what = "is there twice" if link.seq <= last.seq else "is missing"
            return ChainFault(link.chain, min(last.seq + 1, link.seq), what)
        else:
            previous = last.digest
        if (
            previous is not None
            and link_digest(link.chain, link.seq, previous, link.row) != link.digest
        ):
            return ChainFault(link.chain, link.seq, "was changed, or the one before it was")
        ends[link.chain] = link
    return _cut(ends, heads)


def _cut(ends: Mapping[str, ChainLink], heads: Mapping[str, ChainHead]) -> ChainFault | None:
    for name, head in sorted(heads.items()):
        end = ends.get(name)
        seq = 0 if end is None else end.seq
        # Not `head.seq`: the end is written down before its round is committed.
        if seq < head.before_seq:
            return ChainFault(name, seq + 1, "is missing at the end")
        if end is not None and seq == head.seq and end.digest != head.digest:
            return ChainFault(name, seq, "is another one than the driver wrote")
    return None


def links_of(rows: Iterable[Mapping[str, Any]]) -> Iterator[ChainLink]:
    """Rows of the table as links; those of before the chain have none and are left out."""
    for row in rows:
        if row["seq"] is not None:
            yield ChainLink(str(row["chain"]), int(row["seq"]), str(row["digest"]), row)


def _canonical(row: Mapping[str, Any]) -> list[str | None]:
    """A row as text that does not depend on who reads the table."""
    instant = row["at"]
    if isinstance(instant, datetime):
        aware = instant if instant.tzinfo else instant.replace(tzinfo=UTC)
        instant = aware.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")
    return [instant, *(row.get(name) for name in _ROW[1:])]
