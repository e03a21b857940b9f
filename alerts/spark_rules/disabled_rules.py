"""Rules that Spark runs and that were set aside: they failed, or cost more than they may.

Kept in the rule store under the rule's version, so that a rule that was changed runs again, and
so does one that a person switches on (`headgate rules enable`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from alerts.rulepack.rule_pack import Described
from infra.storage.state_file import JsonLayout, StateFile


class SetAside(msgspec.Struct, frozen=True):
    """Which version of a rule, why and when (UTC)."""

    version: str
    reason: str
    at: datetime


class DisabledRules:
    """The rules that are set aside, in a file of the rule store's folder."""

    def __init__(self, folder: Path) -> None:
        self._file = StateFile(
            folder / "aside.json",
            dict[str, SetAside],
            "remove it, and the rules that are set aside run again",
            layout=JsonLayout.COMPACT_SORTED,
        )

    def all(self) -> dict[str, SetAside]:
        """By rule id; raises `Fatal` when the file is damaged."""
        return self._file.read() or {}

    def why(self, rule: Described) -> str | None:
        """Why this version of a rule is set aside; None when it runs."""
        return _told_of(self.all(), rule)

    def put(self, rules: Iterable[Described], reasons: Mapping[str, str]) -> None:
        """Set rules aside, each with its reason by id. One that is aside keeps its time."""
        known = self.all()
        now = datetime.now(UTC)
        new = {
            rule.id: SetAside(rule.version, reasons[rule.id], now)
            for rule in rules
            # Under its version: an older one that was set aside does not count for a changed rule.
            if rule.id in reasons and _told_of(known, rule) is None
        }
        if new:
            self._keep(known | new)

    def lift(self, rule_id: str) -> bool:
        """Let a rule run again; False when it was not aside."""
        known = self.all()
        was_aside = known.pop(rule_id, None) is not None
        if was_aside:
            self._keep(known)
        return was_aside

    def _keep(self, known: Mapping[str, SetAside]) -> None:
        self._file.write(dict(known))


def state_of(rule: Described, known: Mapping[str, SetAside]) -> str:
    """The state of a rule that is switched on, for lists: on, or set aside and why."""
    why = _told_of(known, rule)
    return "on" if why is None else f"set aside: {why}"


def _told_of(known: Mapping[str, SetAside], rule: Described) -> str | None:
    """Why a rule is among those set aside, in this version."""
    entry = known.get(rule.id)
    return entry.reason if entry is not None and entry.version == rule.version else None
