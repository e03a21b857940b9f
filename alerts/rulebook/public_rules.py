"""A folder of public rules: what loads, what is refused and why, what can never fire."""

from __future__ import annotations

import shutil
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alerts.compiler.compiler import Compiled, Refused, Source, compile_rules
from alerts.rulepack.rule_pack import Rule
from infra.errors import Usage

EXAMPLES = 5
"""Rules that a group of refused ones shows."""

NOTICES = ("LICENSE", "LICENCE", "COPYING", "NOTICE")

KINDS = (
    ("no log source", "log source without a mapping"),
    ("no field", "field without a mapping"),
    ("placeholder", "placeholder without values"),
    ("its id is taken", "id taken by another rule"),
    ("it counts rules that do not run", "correlation of rules that do not run"),
    ("it filters no rule", "filter without a rule"),
    ("not YAML", "not YAML"),
    ("it has no id", "no id"),
    ("tests, more than", "too large"),
    ("egular expression", "regular expression that RE2 does not have"),
    ("invalid perl operator", "regular expression that RE2 does not have"),
    ("invalid escape sequence", "regular expression that RE2 does not have"),
    ("bad repetition", "regular expression that RE2 does not have"),
)
"""What a reason contains, and the kind of refusal that is; the first that fits counts."""

OTHER = "not as Sigma demands"


@dataclass(frozen=True)
class Group:
    """Refused rules of one kind: how many, which names they fail at most often, and a few."""

    kind: str
    count: int
    named: Mapping[str, int]
    examples: tuple[Refused, ...]


@dataclass(frozen=True)
class Report:
    """What became of a folder: `never` are loaded rules whose sources nobody has configured."""

    folder: Path
    compiled: Compiled
    groups: tuple[Group, ...]
    never: tuple[Source, ...]
    copied: int = 0

    @property
    def loaded(self) -> tuple[Source, ...]:
        """The rules that run."""
        return tuple(self.compiled.sources.values())


def look_through(folder: Path, configured: Collection[str], into: Path | None = None) -> Report:
    """Compile every rule of a folder and say what became of each.

    `configured` are the sources that feed this lake (none: not known, so no rule
    is said to never fire). The files of rules that load are copied to `into`, as
    they are, with the folder's licence. Raises `Usage` when there is no such folder.
    """
    if not folder.is_dir():
        raise Usage(f"{folder}: no such folder; give a clone of a rule repository, or a part of it")
    if into is not None and into.resolve().is_relative_to(folder.resolve()):
        raise Usage(f"--into {into}: lies inside {folder}; give a folder of your own")
    compiled = compile_rules([folder])
    never = tuple(s for s in compiled.sources.values() if _never(s, configured))
    copied = _copy(folder, compiled, into) if into is not None else 0
    return Report(folder, compiled, _grouped(compiled.refused), never, copied)


def _never(source: Source, configured: Collection[str]) -> bool:
    rule = source.rule
    if not configured or not isinstance(rule, Rule) or not rule.sources:
        return False
    return not any(one in configured or one.partition(":")[0] in configured for one in rule.sources)


def kind_of(reason: str) -> str:
    """The kind of a refusal, for counting."""
    return next((kind for text, kind in KINDS if text in reason), OTHER)


def _grouped(refused: Sequence[Refused]) -> tuple[Group, ...]:
    kinds: dict[str, list[Refused]] = defaultdict(list)
    for one in refused:
        kinds[kind_of(one.reason)].append(one)
    groups = [
        Group(
            kind,
            len(rules),
            dict(Counter(_named(rule.reason) for rule in rules).most_common(10)),
            tuple(rules[:EXAMPLES]),
        )
        for kind, rules in kinds.items()
    ]
    return tuple(sorted(groups, key=lambda group: (-group.count, group.kind)))


def _named(reason: str) -> str:
    """What stands in quotes first, such as a field; else the reason cut short."""
    parts = reason.split("'")
    return parts[1] if len(parts) > 2 else reason[:60]


def _copy(folder: Path, compiled: Compiled, into: Path) -> int:
    """Copy files of loaded rules, placeholders and licences; the number of rule files."""
    files = sorted({source.path for source in compiled.sources.values()})
    notices = [p for p in folder.iterdir() if p.is_file() and p.name.upper().startswith(NOTICES)]
    for path in (*files, *notices, *folder.rglob("placeholders.yml")):
        target = into / path.relative_to(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    return len(files)


def as_json(report: Report) -> dict[str, Any]:
    """The report as data."""
    return {
        "folder": str(report.folder),
        "loaded": len(report.loaded),
        "refused": len(report.compiled.refused),
        "never_matching": [_told(source) for source in report.never],
        "copied_files": report.copied,
        "licenses": dict(Counter(s.rule.license or "not said" for s in report.loaded)),
        "refused_by_reason": [
            {
                "reason": group.kind,
                "count": group.count,
                "named": dict(group.named),
                "examples": [
                    {"rule": r.rule, "path": r.path, "reason": r.reason, "remedy": r.remedy}
                    for r in group.examples
                ],
            }
            for group in report.groups
        ],
        "rules": [_told(source) for source in report.loaded],
    }


def _told(source: Source) -> dict[str, str]:
    rule = source.rule
    return {
        "id": rule.id,
        "title": rule.title,
        "level": rule.level,
        "author": rule.author,
        "license": rule.license,
        "path": str(source.path),
    }


def as_text(report: Report) -> list[str]:
    """The report in lines for a person."""
    told = [
        f"{len(report.loaded)} rules load, {len(report.compiled.refused)} are refused, "
        f"{len(report.never)} can never fire with the sources configured"
    ]
    for group in report.groups:
        told.append(f"refused {group.count}: {group.kind}")
        most = ", ".join(f"{name} ({count})" for name, count in group.named.items())
        told.append(f"  most often: {most}")
        for one in group.examples[:2]:
            told.append(f"  {one.path}: {one.reason}; {one.remedy}")
    missing = Counter(", ".join(s.rule.sources) for s in report.never if isinstance(s.rule, Rule))
    for sources, count in missing.most_common():
        told.append(f"never fires {count}: needs one of the sources {sources}")
    licenses = Counter(s.rule.license or "not said" for s in report.loaded)
    told.append("licences: " + ", ".join(f"{name} ({n})" for name, n in licenses.most_common()))
    return told
