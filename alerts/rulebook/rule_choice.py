"""Several rules at once: those that are named, or all that meet some criteria."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from alerts.compiler.compiler import RuleSource
from alerts.compiler.model_rule_files import ModelSource
from alerts.compiler.rule_header import STATUSES
from alerts.domain.levels import SEVERITY_BY_LEVEL
from alerts.rulebook.rule_packs import BUNDLED_PACK, every_pack, pack_of
from alerts.rulebook.rule_store import RuleFiles
from alerts.rulebook.rule_switch import rule_id_of
from infra.config.settings import Settings
from infra.errors import Usage

AnySource: TypeAlias = RuleSource | ModelSource


@dataclass(frozen=True)
class RuleCriteria:
    """What rules must be like: one of the values of each criterion that has any.

    A tag also stands for those below it: `attack.t1059` for `attack.t1059.001`. `statuses` are
    Sigma's, `products` those of log sources, `packs` folders of `alerts.rules` (`bundled`: the
    rules that come with Headgate).
    """

    tags: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()
    statuses: tuple[str, ...] = ()
    products: tuple[str, ...] = ()
    packs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _require_known("level", self.levels, SEVERITY_BY_LEVEL)
        _require_known("status", self.statuses, ("", *STATUSES))

    def __bool__(self) -> bool:
        return any((self.tags, self.levels, self.statuses, self.products, self.packs))

    def missed(self, source: AnySource, pack: str = "") -> str:
        """The first criterion that a rule does not meet, with its value; empty: it meets all."""
        header = getattr(source, "header", None)
        has: dict[str, tuple[tuple[str, ...], Iterable[str]]] = {
            "status": (self.statuses, [header.status if header else ""]),
            "level": (self.levels, [source.rule.level]),
            "product": (self.products, [header.product if header else ""]),
            "tag": (self.tags, _with_upper(source.rule.tags)),
            "pack": (self.packs, [pack]),
        }
        for name, (wanted, values) in has.items():
            low = {value.lower() for value in values}
            if wanted and not low & {value.lower() for value in wanted}:
                return name if name == "tag" else f"{name} {', '.join(low - {''}) or 'not said'}"
        return ""


def every_source(files: RuleFiles) -> Mapping[str, AnySource]:
    """The rules of every kind, by id."""
    return {**files.compiled().sources, **files.models.sources}


def chosen_rules(
    files: RuleFiles, names: Iterable[str], criteria: RuleCriteria
) -> dict[str, AnySource]:
    """The rules that are named and those that meet the criteria, by id.

    Raises `Usage` for a name that is none, and where no rule meets the criteria.
    """
    compiled = files.compiled()
    every: Mapping[str, AnySource] = {**compiled.sources, **files.models.sources}
    chosen: dict[str, AnySource] = {}
    for name in names:
        model = files.models.named(name)
        rule_id = model.rule.id if model else rule_id_of(compiled, name)
        chosen[rule_id] = every[rule_id]
    if not criteria:
        return chosen
    packs = _packs(files.settings, criteria)
    meets = {i: s for i, s in every.items() if not criteria.missed(s, packs(s.path))}
    if not meets:
        missed = Counter(criteria.missed(s, packs(s.path)).split()[0] for s in every.values())
        most = ", ".join(f"{count} by {name}" for name, count in missed.most_common())
        raise Usage(f"no rule is like that: of {len(every)} are left out {most}")
    return chosen | meets


def _packs(settings: Settings, criteria: RuleCriteria) -> Callable[[Path], str]:
    known = every_pack(settings)
    _require_known("pack", criteria.packs, {BUNDLED_PACK: None, **known})
    return lambda path: pack_of(known, path)


def _with_upper(tags: Iterable[str]) -> set[str]:
    """Tags and all that stand above them: of a.b.c also a.b and a."""
    upper: set[str] = set()
    for tag in tags:
        parts = tag.split(".")
        upper |= {".".join(parts[:length]) for length in range(1, len(parts) + 1)}
    return upper


def _require_known(
    name: str, values: Iterable[str], known: Mapping[str, object] | Iterable[str]
) -> None:
    for value in values:
        if value not in known:
            raise Usage(f"no {name} '{value}'; there are {', '.join(known)}")
