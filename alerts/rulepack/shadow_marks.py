"""Which rules run in shadow: kept beside the packs, as the switches are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path

import msgspec

from infra.storage.state_file import JsonLayout, StateFile

MOST_DAYS = 90
"""Longest that a rule is put in shadow for; it may be put there again."""

CANDIDATES = "candidates"
"""Folder of the store with files of changed rules that are tried beside the rules in force."""


class ShadowMark(msgspec.Struct, frozen=True):
    """Who put a rule in shadow, why, since when and for how long (UTC).

    `changes`: the rule whose changed text this is, and `text` that text; empty for a rule that is
    tried as it is.
    """

    who: str
    reason: str
    since: datetime
    until: datetime
    changes: str = ""
    text: str = ""


class ShadowMarks:
    """The marks, by rule id, in a file of the rule store's folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = StateFile(
            folder / "shadow.json",
            dict[str, ShadowMark],
            "put it back from a backup, or remove it, and every rule but changed ones is live",
            layout=JsonLayout.COMPACT_SORTED,
        )

    def all(self) -> dict[str, ShadowMark]:
        """By rule id; raises `Fatal` when the file is damaged."""
        return self._file.read() or {}

    def put(self, marks: Mapping[str, ShadowMark]) -> None:
        """Note marks. They take effect when the rules are compiled next."""
        self._file.write(self.all() | dict(marks))

    def lift(self, rule_ids: Iterable[str]) -> None:
        """Take marks away."""
        gone = set(rule_ids)
        self._file.write({i: mark for i, mark in self.all().items() if i not in gone})

    def candidate(self, rule_id: str) -> Path:
        """The file of a changed rule under the id that it has in shadow."""
        return self._folder / CANDIDATES / f"{rule_id}.yml"

    def candidates(self) -> list[Path]:
        """The folder of changed rules, if there is one."""
        folder = self._folder / CANDIDATES
        return [folder] if folder.is_dir() else []

    def ids(self) -> set[str]:
        """The rules in shadow. What lies among the candidates is, marked or not: it is a second
        text of a rule that is live."""
        return {
            *self.all(),
            *(p.stem for folder in self.candidates() for p in folder.glob("*.yml")),
        }
