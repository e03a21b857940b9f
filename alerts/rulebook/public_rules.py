"""A folder of public rules: what loads, what is refused and why, what can never fire."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from textwrap import shorten
from typing import Any

from alerts.compiler.compiler import Compiled, RefusedRule, RuleSource, compile_rules
from alerts.compiler.rule_files import PLACEHOLDERS
from alerts.compiler.rule_header import RETIRED, STATUSES
from alerts.reach.reach import Reach, reach_of
from alerts.rulebook.rule_choice import RuleCriteria
from alerts.rulepack.rule_pack import Correlation, Rule, RulePack
from infra.errors import Usage

_EXAMPLES = 5
"""Rules that a group of refused ones shows."""

NOTICES = ("LICENSE", "LICENCE", "COPYING", "NOTICE")

_KINDS = (
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

_STATUS = re.compile(r"^status: *[\"']?(\w+)", re.M)

_OTHER = "not as Sigma demands"


@dataclass(frozen=True)
class _Group:
    """Refused rules of one kind: how many, which names they fail at most often, and a few."""

    kind: str
    count: int
    named: Mapping[str, int]
    examples: tuple[RefusedRule, ...]


@dataclass(frozen=True)
class Report:
    """What became of a folder: `never` are loaded rules whose sources nobody has configured,
    `dead` those that not even an event made for them reaches. `left_out`: rules that were not
    wanted, by the reason; they are in nothing else."""

    folder: Path
    compiled: Compiled
    groups: tuple[_Group, ...]
    never: tuple[RuleSource, ...]
    dead: tuple[Reach, ...] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)

    @property
    def loaded(self) -> tuple[RuleSource, ...]:
        """The rules that run."""
        return tuple(self.compiled.sources.values())


def look_through(
    folder: Path,
    configured: Collection[str],
    wanted: RuleCriteria | None = None,
) -> Report:
    """Compile every rule of a folder and say what became of each that is `wanted`.

    Deprecated and unsupported rules are wanted only where `wanted` names their status. A rule
    that another one counts, or that is in one file with it, comes along with it.

    `configured` are the sources that feed this lake (none: not known, so no rule
    is said to never fire). Raises `Usage` when there is no such folder.
    """
    if not folder.is_dir():
        raise Usage(f"{folder}: no such folder; give a clone of a rule repository, or a part of it")
    compiled, left_out = _wanted(
        compile_rules([folder]), _without_retired(wanted or RuleCriteria())
    )
    never = tuple(s for s in compiled.sources.values() if _never(s, configured))
    dead = tuple(reach for reach in reach_of(compiled) if reach.state == "dead")
    return Report(folder, compiled, _grouped(compiled.refused), never, dead, left_out)


def _without_retired(wanted: RuleCriteria) -> RuleCriteria:
    # Rules that say no status are as good as others; their authors write none at all.
    usual = ("", *(status for status in STATUSES if status not in RETIRED))
    return wanted if wanted.statuses else replace(wanted, statuses=usual)


def _wanted(compiled: Compiled, wanted: RuleCriteria) -> tuple[Compiled, Counter[str]]:
    """What is wanted of a folder, and how many rules are left out, by reason."""
    missed = {i: wanted.missed(source) for i, source in compiled.sources.items()}
    files = {compiled.sources[i].path for i, reason in missed.items() if not reason}
    along = {i for i, source in compiled.sources.items() if source.path in files}
    # Until nothing is added: what a correlation counts may be a correlation itself.
    grew = True
    while grew:
        rules = [compiled.sources[i].rule for i in along]
        counted = {r for rule in rules if isinstance(rule, Correlation) for r in rule.rules}
        grew = not counted <= along
        along |= counted & compiled.sources.keys()
    left_out = Counter(reason for i, reason in missed.items() if i not in along)
    refused = []
    for refusal in compiled.refused:
        status = _status_in(Path(refusal.path))
        # A refusal without a file is of the folder as a whole, whatever status is wanted.
        if status in wanted.statuses or not refusal.path:
            refused.append(refusal)
        else:
            left_out[f"status {status or 'not said'}"] += 1
    pack = RulePack(
        rules=tuple(r for r in compiled.pack.rules if r.id in along),
        correlations=tuple(r for r in compiled.pack.correlations if r.id in along),
        queries=tuple(r for r in compiled.pack.queries if r.id in along),
    )
    sources = {i: source for i, source in compiled.sources.items() if i in along}
    return Compiled(pack, tuple(refused), sources), left_out


def _status_in(path: Path) -> str:
    """The status that a file which does not load says first; empty where it says none."""
    try:
        match = _STATUS.search(path.read_text("utf-8", "replace"))
    except OSError:
        return ""
    return match[1] if match else ""


def _never(source: RuleSource, configured: Collection[str]) -> bool:
    rule = source.rule
    if not configured or not isinstance(rule, Rule) or not rule.sources:
        return False
    # Who feeds `zeek` feeds each of its kinds, such as `zeek:conn`.
    return not any(
        source_name in configured or source_name.partition(":")[0] in configured
        for source_name in rule.sources
    )


def _kind_of(reason: str) -> str:
    """The kind of a refusal, for counting."""
    return next((kind for text, kind in _KINDS if text in reason), _OTHER)


def _grouped(refused: Sequence[RefusedRule]) -> tuple[_Group, ...]:
    kinds: dict[str, list[RefusedRule]] = defaultdict(list)
    for refusal in refused:
        kinds[_kind_of(refusal.reason)].append(refusal)
    groups = [
        _Group(
            kind,
            len(rules),
            dict(Counter(_named(rule.reason) for rule in rules).most_common(10)),
            tuple(rules[:_EXAMPLES]),
        )
        for kind, rules in kinds.items()
    ]
    return tuple(sorted(groups, key=lambda group: (-group.count, group.kind)))


def _named(reason: str) -> str:
    """What stands in quotes first, such as a field; else the reason cut short."""
    parts = reason.split("'")
    return parts[1] if len(parts) > 2 else shorten(reason, 60, placeholder=" ...")


def files_to_take(report: Report) -> dict[str, bytes]:
    """The files of rules that load, of placeholders, and licences, by their path in the folder."""
    folder = report.folder
    files = {source.path for source in report.loaded}
    # Public rules may be passed on only together with their notices.
    notices = [p for p in folder.iterdir() if p.is_file() and p.name.upper().startswith(NOTICES)]
    # The same tree as there: file names repeat between the folders of public repositories.
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted({*files, *notices, *folder.rglob(PLACEHOLDERS)})
    }


def summary_json(report: Report, copied: int = 0) -> dict[str, Any]:
    """The report as data; `copied`: files of rules that were put in a folder."""
    return {
        "folder": str(report.folder),
        "loaded": len(report.loaded),
        "refused": len(report.compiled.refused),
        "never_matching": [_rule_row(source) for source in report.never],
        "cannot_fire": [
            {"id": d.rule.id, "title": d.rule.title, "path": str(d.path), "reason": d.reason}
            for d in report.dead
        ],
        "copied_files": copied,
        "left_out": dict(report.left_out),
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
        "rules": [_rule_row(source) for source in report.loaded],
    }


def _rule_row(source: RuleSource) -> dict[str, str]:
    rule = source.rule
    return {
        "id": rule.id,
        "title": rule.title,
        "level": rule.level,
        "author": rule.author,
        "license": rule.license,
        "path": str(source.path),
    }


def summary_text(report: Report) -> list[str]:
    """The report in lines for a person."""
    lines = [
        f"{len(report.loaded)} rules load, {len(report.compiled.refused)} are refused, "
        f"{len(report.never)} can never fire with the sources configured, "
        f"{len(report.dead)} with any source"
    ]
    lines += [f"left out {n}: {why}" for why, n in Counter(report.left_out).most_common()]
    lines += [f"cannot fire: {d.path}: {d.reason}" for d in report.dead]
    for group in report.groups:
        lines.append(f"refused {group.count}: {group.kind}")
        most = ", ".join(f"{name} ({count})" for name, count in group.named.items())
        lines.append(f"  most often: {most}")
        for example in group.examples[:2]:
            lines.append(f"  {example.path}: {example.reason}; {example.remedy}")
    missing = Counter(", ".join(s.rule.sources) for s in report.never if isinstance(s.rule, Rule))
    for sources, count in missing.most_common():
        lines.append(f"never fires {count}: needs one of the sources {sources}")
    licenses = Counter(s.rule.license or "not said" for s in report.loaded)
    lines.append("licences: " + ", ".join(f"{name} ({n})" for name, n in licenses.most_common()))
    return lines
