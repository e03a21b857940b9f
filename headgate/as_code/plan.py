"""What would change: a folder against what is in force. Nothing is changed by looking."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headgate.as_code.folder import read_folder
from headgate.as_code.kinds.every import CONFIG_KINDS, kind_named
from headgate.as_code.kinds.indicators import INDICATOR_LISTS
from headgate.as_code.kinds.kind import ConfigProblem, FolderReading
from headgate.as_code.kinds.rules import RULES
from headgate.as_code.rule_check import PlannedRules, check_changed_rules, compile_planned
from headgate.as_code.state import ConfigChange, ConfigState, diff_states
from infra.config.settings import Settings


@dataclass(frozen=True)
class ConfigPlan:
    """`changes` would be made; `left`: not in the folder, and stays without `--prune`;
    `by_hand`: only a person can make it. With a problem nothing is applied."""

    changes: tuple[ConfigChange, ...]
    left: tuple[ConfigChange, ...]
    by_hand: tuple[ConfigChange, ...]
    problems: tuple[ConfigProblem, ...]

    @property
    def exit_code(self) -> int:
        """0: nothing to do, 1: problems, 2: changes."""
        if self.problems:
            return 1
        return 2 if self.changes or self.by_hand else 0


def owned(path: str) -> bool:
    """Whether a path of an export is a file of some kind."""
    return any(kind.owns(path) for kind in CONFIG_KINDS)


def state_in_force(settings: Settings) -> ConfigState:
    """All that is in force now."""
    return {kind.name: objects for kind in CONFIG_KINDS if (objects := kind.in_force(settings))}


@contextmanager
def planned_folder(
    settings: Settings, folder: Path, prune: bool
) -> Iterator[tuple[ConfigPlan, FolderReading, PlannedRules]]:
    """The plan of a folder; what was read of it is there until the block ends."""
    texts, strange = read_folder(folder, owned)
    with tempfile.TemporaryDirectory(prefix="headgate-plan-") as scratch:
        reading = FolderReading(settings, texts, state_in_force(settings), Path(scratch), prune)
        for path in strange:
            reading.refuse("file", path, "no file of an export; correct its place or name")
        wanted, rules = _wanted(reading)
        changes = diff_states(reading.in_force, wanted)
        changed = [c.name for c in changes if c.kind == RULES.name and c.after is not None]
        check_changed_rules(reading, rules, changed)
        yield _sorted_out(changes, reading), reading, rules


def _wanted(reading: FolderReading) -> tuple[ConfigState, PlannedRules]:
    wanted: ConfigState = {RULES.name: RULES.from_texts(reading)}
    # Before the rules are compiled: rules ask lists by name.
    wanted[INDICATOR_LISTS.name] = INDICATOR_LISTS.from_texts(reading)
    stay = {} if reading.prune else reading.in_force.get(RULES.name, {})
    rules = compile_planned(reading, stay | wanted[RULES.name])
    reading.rule_ids = rules.names
    for kind in CONFIG_KINDS:
        if kind not in (RULES, INDICATOR_LISTS):
            wanted[kind.name] = kind.from_texts(reading)
    return wanted, rules


def _sorted_out(changes: tuple[ConfigChange, ...], reading: FolderReading) -> ConfigPlan:
    # What could not be read is a problem, and must not look as if it were to go.
    bad = {(problem.kind, problem.name) for problem in reading.problems}
    sound = [c for c in changes if (c.kind, c.name) not in bad]
    left = [c for c in sound if c.after is None and not reading.prune]
    rest = [c for c in sound if c not in left]
    by_hand = [c for c in rest if kind_named(c.kind).is_by_hand]
    made = [c for c in rest if c not in by_hand]
    return ConfigPlan(tuple(made), tuple(left), tuple(by_hand), tuple(reading.problems))
