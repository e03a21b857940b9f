"""What the text of a rule was before: each version with who saved it, when and why.

Kept beside the rule packs, a file a rule. What a file became by another hand, an editor or git, is
nobody's version here until somebody saves over it; then it is kept as well.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import unified_diff
from pathlib import Path

from alerts.rulepack.locations import store_folder
from infra.config.settings import Settings
from infra.errors import Usage
from infra.storage.state_file import StateFile

_VERSIONS_KEPT = 100
"""Versions of one rule that are kept, the newest."""
LINES_COMPARED = 5_000
"""Lines of a text that is compared."""


@dataclass(frozen=True)
class RuleVersion:
    """A text of a rule's file. `at`: ISO 8601, UTC; `who`: empty where the file says it alone.

    `act`: created, changed, removed (the text is then empty), or file: as it was found.
    """

    version: str
    at: str
    who: str
    act: str
    reason: str
    text: str


def text_version(content: bytes) -> str:
    """What names a text: 32 hexadecimal digits of its SHA-256."""
    return hashlib.sha256(content).hexdigest()[:32]


def rule_versions(settings: Settings, rule_id: str, path: Path | None) -> list[RuleVersion]:
    """The versions, oldest first; what the file holds now is the last, saved here or not."""
    known = list(_file(settings, rule_id).read() or [])
    here = None if path is None else _as_file(path)
    if here is not None and (not known or known[-1].version != here.version):
        known.append(here)
    return known


def note_version(
    settings: Settings, rule_id: str, before: RuleVersion | None, saved: RuleVersion
) -> None:
    """Keep a version that was saved, and the one it took the place of where nobody had."""
    file = _file(settings, rule_id)
    known = list(file.read() or [])
    if before is not None and (not known or known[-1].version != before.version):
        known.append(before)
    file.write([*known, saved][-_VERSIONS_KEPT:])


def file_version(path: Path) -> RuleVersion | None:
    """What a file holds now; None where there is none."""
    return _as_file(path) if path.is_file() else None


def new_version(content: bytes, who: str, act: str, reason: str) -> RuleVersion:
    """A version that somebody saves now."""
    saved_at = datetime.now(UTC).isoformat(timespec="seconds")
    text = content.decode("utf-8", "replace")
    return RuleVersion(text_version(content), saved_at, who, act, reason, text)


def text_diff(before: str, after: str, names: Sequence[str] = ("before", "after")) -> str:
    """A unified diff, empty where they are alike; raises `Usage` for texts that are too long."""
    old, new = before.splitlines(), after.splitlines()
    if max(len(old), len(new)) > LINES_COMPARED:
        raise Usage(f"texts of more than {LINES_COMPARED:,} lines are not compared here")
    return "\n".join(unified_diff(old, new, names[0], names[1], lineterm=""))


def _as_file(path: Path) -> RuleVersion:
    changed = datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds")
    content = path.read_bytes()
    # A file that is no rule may hold any bytes, and has to be shown all the same.
    text = content.decode("utf-8", "replace")
    return RuleVersion(text_version(content), changed, "", "file", "", text)


def _file(settings: Settings, rule_id: str) -> StateFile[list[RuleVersion]]:
    # Hashed: the id of a rule comes from a file and becomes a file's name.
    name = hashlib.sha256(rule_id.encode()).hexdigest()[:32]
    path = store_folder(settings) / "versions" / f"{name}.json"
    return StateFile(path, list[RuleVersion], f"remove {path}; its rule's history begins anew")
