"""Rules of kind model: a YAML file with a Sigma header, `type: model` and what a model judges by.

They are no Sigma: what they ask is not whether an event looks like something, but whether a
device's hour is unlike all others that it and its peers had. Such a rule runs once a model
was trained for it (`headgate models train`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml

from alerts.compiler.rule_files import require_small, rule_files
from alerts.domain.attack import techniques_of
from alerts.domain.step import STEPS, is_step
from alerts.rulepack.field_mapping import mapping
from alerts.rulepack.log_source import Unmapped
from alerts.rulepack.rule_pack import ModelRule, content_version
from infra.config.bounded_yaml import yaml_documents

MODEL = "model"
"""`type` of such a rule, and `kind` of its findings."""

FEATURES = ("events", "bytes_out", "bytes_in")
"""What can be measured of an hour; all only grow while the hour goes on."""

ROLES = {"src_endpoint": "src_ip", "dst_endpoint": "dst_ip", "device": "device.ip"}
"""Whose hour it is -> the column of silver.event with the address."""

# Two weeks: each hour of the week came twice.
HISTORY_DAYS = 14
THRESHOLD = 6.0

_QUANTITY = re.compile(r"(\d+(?:\.\d+)?) ?(k|M|G|T)?B?")
_UNITS = {None: 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_DAYS = re.compile(r"(\d+)d")
_MENTIONED = re.compile(r"""\btype["']?\s*:\s*["']?model\b""")


class _Judged(msgspec.Struct, forbid_unknown_fields=True):
    """The keys under `model:`."""

    features: tuple[str, ...] = ("bytes_out", "events")
    least: dict[str, int | str] = {}
    threshold: float = THRESHOLD
    history: str = f"{HISTORY_DAYS}d"
    role: str = "src_endpoint"


class Trial(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A test: what devices usually do in an hour, and an hour of one of them.

    `active`: the hours of the day in which they do it, the last one left out; `at`: the judged one.
    """

    usual: dict[str, int | str]
    hour: dict[str, int | str]
    active: tuple[int, int] = (0, 24)
    at: int = 10


class _Trials(msgspec.Struct, forbid_unknown_fields=True):
    match: tuple[Trial, ...] = ()
    no_match: tuple[Trial, ...] = ()


class _Own(msgspec.Struct, forbid_unknown_fields=True):
    runbook: str = ""
    tests: _Trials = msgspec.field(default_factory=_Trials)


class _LogSource(msgspec.Struct, forbid_unknown_fields=True):
    category: str | None = None
    product: str | None = None
    service: str | None = None


class _File(msgspec.Struct, forbid_unknown_fields=True):
    """A file of this kind: the keys that Sigma has for a rule, but for its detection."""

    type: Literal["model"]
    title: str
    id: str
    logsource: _LogSource
    model: _Judged = msgspec.field(default_factory=_Judged)
    name: str = ""
    status: str = ""
    description: str = ""
    author: str = ""
    license: str = ""
    date: Any = None
    modified: Any = None
    tags: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    falsepositives: tuple[str, ...] = ()
    level: Literal["informational", "low", "medium", "high", "critical"] = "medium"
    headgate: _Own = msgspec.field(default_factory=_Own)


@dataclass(frozen=True)
class ModelSource:
    """A rule of kind model, where it came from, and whether it is switched on."""

    rule: ModelRule
    path: Path
    enabled: bool
    match: tuple[Trial, ...] = ()
    no_match: tuple[Trial, ...] = ()

    @property
    def runs(self) -> bool:
        """Whether it is on and has a model."""
        return self.enabled and bool(self.rule.model)


@dataclass(frozen=True)
class BadModel:
    """A rule of kind model that is refused, and why."""

    path: Path
    reason: str


@dataclass(frozen=True)
class Models:
    """All rules of kind model, by id, and those that are refused."""

    sources: Mapping[str, ModelSource] = field(default_factory=dict)
    refused: tuple[BadModel, ...] = ()

    @property
    def running(self) -> tuple[ModelRule, ...]:
        """Those of the pack, by id."""
        return tuple(s.rule for _, s in sorted(self.sources.items()) if s.runs)

    def named(self, name: str) -> ModelSource | None:
        """By id or name."""
        result = (s for s in self.sources.values() if name in (s.rule.id, s.rule.name))
        return next(result, None)

    def switched(self, disabled: Collection[str], shadow: Collection[str]) -> Models:
        """The same with just these, by id, switched off, and those of `shadow` alerting nobody."""
        sources = {i: replace(s, enabled=i not in disabled) for i, s in self.sources.items()}
        for rule_id in sources.keys() & set(shadow):
            source = sources[rule_id]
            rule = msgspec.structs.replace(source.rule, alerting=False, shadow=True)
            sources[rule_id] = replace(source, rule=rule)
        return replace(self, sources=sources)


def is_model(document: Any) -> bool:
    """Whether a document of a rule folder is of this kind."""
    return isinstance(document, dict) and document.get("type") == MODEL


def read_models(
    folders: Sequence[Path],
    trained: Mapping[str, str],
    *,
    disabled: Collection[str] = (),
    levels: Collection[str] = ("medium", "high", "critical"),
) -> Models:
    """The rules of kind model below the folders, of which some may be single files.

    `trained`: hash of the model in force by the rule's id. Of two rules with one id the first
    is taken.
    """
    sources: dict[str, ModelSource] = {}
    refused: list[BadModel] = []
    for path in _files(folders):
        for document in _documents(path):
            try:
                given = _read(document)
                rule, tests = _rule(given), _trials(given)
                # Models are kept by the rule's id, so two rules of one id would share one.
                if rule.id in sources:
                    raise ValueError(f"its id is taken by {sources[rule.id].path}")
            except (ValueError, Unmapped) as error:
                refused.append(BadModel(path, " ".join(str(error).split())))
                continue
            rule = msgspec.structs.replace(
                rule,
                version=content_version(rule),
                alerting=rule.level in levels,
                model=trained.get(rule.id, ""),
            )
            on = rule.id not in disabled
            sources[rule.id] = ModelSource(rule, path, on, tests.match, tests.no_match)
    return Models(sources, tuple(refused))


def _files(folders: Sequence[Path]) -> Iterator[Path]:
    for folder in folders:
        if folder.is_file():
            yield folder
        elif folder.is_dir():
            yield from rule_files(folder)


def _documents(path: Path) -> list[Any]:
    try:
        require_small(path)
        content = path.read_bytes()
        # Most files are Sigma's, and parsing YAML takes time; even looking for the key does.
        if b"model" not in content or not _MENTIONED.search(text := content.decode("utf-8")):
            return []
        loaded = list(yaml_documents(text))
    except (yaml.YAMLError, OSError, ValueError):
        return []  # what is no YAML is refused where Sigma rules are read
    return [document for document in loaded if is_model(document)]


def _read(document: Mapping[str, Any]) -> _File:
    # Not strict: a number may be written as a text.
    return msgspec.convert(document, _File, strict=False)


def _rule(given: _File) -> ModelRule:
    model, where = given.model, given.logsource
    source = mapping().logsource(where.category, where.product, where.service)
    # Hours are counted by Spark over whole classes; a condition for each event is not asked there.
    if source.where:
        raise ValueError(
            "logsource: its events are told apart by conditions; name one that is whole classes, "
            "such as {product: ocsf, category: network_activity}"
        )
    stands_alone = model.features == (STEPS,)
    if not stands_alone and not (model.features and set(model.features) <= set(FEATURES)):
        allowed = f"{', '.join(FEATURES)}, or {STEPS} alone"
        raise ValueError(f"model.features: {list(model.features)}; of {allowed}")
    if stands_alone and model.least:
        raise ValueError(
            f"model.least: {sorted(model.least)}; {STEPS} are no quantity, leave it out"
        )
    if model.role not in ROLES:
        raise ValueError(f"model.role: '{model.role}'; one of {', '.join(ROLES)}")
    if not set(model.least) <= set(model.features):
        raise ValueError(f"model.least: {sorted(model.least)}; of its features")
    if not 0 < model.threshold <= 100:
        raise ValueError(f"model.threshold: {model.threshold}; above 0, at most 100")
    tactics, techniques = techniques_of(given.tags)
    return ModelRule(
        id=given.id,
        title=given.title,
        name=given.name,
        level=given.level,
        description=given.description,
        author=given.author,
        license=given.license,
        tags=given.tags,
        tactics=tactics,
        techniques=techniques,
        references=given.references,
        falsepositives=given.falsepositives,
        runbook=given.headgate.runbook,
        classes=source.classes,
        sources=source.sources,
        role=model.role,
        features=model.features,
        least={name: quantity(value) for name, value in model.least.items()},
        threshold=model.threshold,
        history_days=_days(model.history),
    )


def _trials(given: _File) -> _Trials:
    """The tests of a rule, looked through; raises `ValueError`."""
    tests = given.headgate.tests
    steps = given.model.features == (STEPS,)
    for trial in (*tests.match, *tests.no_match):
        usual = trial.usual | trial.hour
        if steps and not all(is_step(step) for step in usual):
            raise ValueError(f"headgate.tests: {sorted(usual)}; steps, as 'a.exe started b.exe'")
        if not steps and not set(usual) <= set(given.model.features):
            raise ValueError(f"headgate.tests: {sorted(usual)}; of its features")
        first, last = trial.active
        if not (0 <= first < last <= 24 and 0 <= trial.at < 24):
            raise ValueError("headgate.tests: active and at are hours of the day, 0 to 24")
        for value in (*trial.usual.values(), *trial.hour.values()):
            quantity(value)
    return tests


def quantity(value: int | str) -> int:
    """A number, or one written as 500, 20 MB or 1.5G (powers of ten); raises `ValueError`."""
    if isinstance(value, int):
        return value
    match = _QUANTITY.fullmatch(value)
    if match is None:
        raise ValueError(f"'{value}' is no quantity; write 500 or 20 MB")
    return round(float(match[1]) * _UNITS[match[2]])


def _days(text: str) -> int:
    match = _DAYS.fullmatch(text)
    if match is None or not 1 <= int(match[1]) <= 366:
        raise ValueError(f"model.history: '{text}'; write days, such as {HISTORY_DAYS}d")
    return int(match[1])
