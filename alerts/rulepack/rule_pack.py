"""A rule pack: all rules that run, as data under the hash of its content."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

import msgspec

from alerts.rulepack.locations import look_in
from alerts.rulepack.predicate import Literals, Node
from infra.errors import Fatal
from infra.storage.state_file import JsonLayout, StateFile

_FORMAT = 1
"""Version of the pack's JSON; a reader refuses a higher one."""

_FIRST_KINDS = ("format", "rules", "correlations")
"""What the JSON of every pack has, also where there is none."""


class Described(msgspec.Struct, frozen=True, kw_only=True):
    """What rules and correlations both say of themselves."""

    id: str
    title: str
    version: str = ""
    name: str = ""
    level: str = "medium"
    description: str = ""
    author: str = ""
    license: str = ""
    tags: tuple[str, ...] = ()
    tactics: tuple[str, ...] = ()
    techniques: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    falsepositives: tuple[str, ...] = ()
    runbook: str = ""
    alerting: bool = False
    feeds: tuple[str, ...] = ()
    # Left out of the JSON where a rule is none: packs from before keep their hash.
    shadow: bool | msgspec.UnsetType = msgspec.UNSET

    @property
    def in_shadow(self) -> bool:
        """Whether its findings are only kept: no alert, no risk, no live correlation."""
        return self.shadow is True


class Rule(Described, frozen=True, kw_only=True):
    """One Sigma rule.

    `classes` and `sources` say which events it looks at (none: all). `literals`
    are (field, folded text) pairs of which one must occur; None: no such pair.
    `roles` are the endpoints it is about, the first with an address counts.
    `carry` are fields that correlations need from its findings. `confirm` is what must hold
    besides of whom it is about (`alerts.compiler.enrichment_predicates`).
    """

    classes: tuple[int, ...] = ()
    sources: tuple[str, ...] = ()
    roles: tuple[str, ...] = ("src_endpoint", "device")
    predicate: Node
    literals: Literals | None = None
    carry: tuple[str, ...] = ()
    confirm: Node | msgspec.UnsetType = msgspec.UNSET


class Correlation(Described, frozen=True, kw_only=True):
    """One Sigma correlation. It fires when its number, `op` and `count` hold inside the time span.

    `aliases` maps a group-by name to the field that each rule (by id) has for it.
    `field` is what the `value_...` types count or compute with. `first_seen` is a
    type of ours: a value of `field` that its group did not have within the time
    span, once the group is known for `learn_seconds`. Of a range `op` and `count` are
    the lower end and `upper` the other. `fields`: `field` and more, whose values count
    together. `any_of`: for the `temporal...` types, sets of rules of which one must
    have fired whole; they stand in place of `op` and `count`. `none_of`: for each of these sets
    the rules of which none may have fired with it.
    """

    type: str
    rules: tuple[str, ...]
    group_by: tuple[str, ...]
    timespan_seconds: int
    op: str = "gte"
    count: int | float = 1
    percentile: int | None = None
    learn_seconds: int = 0
    field: str | None = None
    aliases: dict[str, dict[str, str]] = {}
    generate: bool = False
    # Left out of the JSON where a rule has none: packs from before keep their hash.
    upper: tuple[str, int | float] | msgspec.UnsetType = msgspec.UNSET
    fields: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    any_of: tuple[tuple[str, ...], ...] | msgspec.UnsetType = msgspec.UNSET
    none_of: tuple[tuple[str, ...], ...] | msgspec.UnsetType = msgspec.UNSET

    @property
    def span(self) -> int:
        """The time span of its windows, microseconds."""
        return self.timespan_seconds * 1_000_000

    @property
    def alternatives(self) -> tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]:
        """Of an expression: the rules that must all have fired, and those of which none may."""
        if self.any_of is msgspec.UNSET:
            return ()
        never = ((),) * len(self.any_of) if self.none_of is msgspec.UNSET else self.none_of
        return tuple(zip(self.any_of, never, strict=True))

    @property
    def every_field(self) -> tuple[str, ...]:
        """All fields whose values it counts or computes with."""
        if self.fields is not msgspec.UNSET:
            return self.fields
        return () if self.field is None else (self.field,)


class ModelRule(Described, frozen=True, kw_only=True):
    """A rule over hours of a device's activity, judged by a model that was trained on history.

    `classes` and `sources` say which events count (none: all), `role` whose activity they are.
    `features` are what is measured of an hour, `least` the values below which one is never
    unusual. It fires at a score of `threshold`; `model` is the hash of the trained model.
    """

    classes: tuple[int, ...] = ()
    sources: tuple[str, ...] = ()
    role: str = "src_endpoint"
    features: tuple[str, ...]
    least: dict[str, int] = {}
    threshold: float
    history_days: int
    model: str = ""


class Query(Described, frozen=True, kw_only=True):
    """A rule that Spark runs: a question in Spark SQL, or a Python function over a DataFrame.

    `type`: sql or function; `text`: the SELECT, or the source of the Python file whose function
    `rule` it is. With `window_seconds` it gives rows with a column `window`, of Spark's windows
    of that length, which begin every `slide_seconds`, and `group_by` are the columns that tell
    rows of one window apart; 0: it gives single events, by `event_uid`. `roles`, `carry` and
    `confirm` are as in `Rule`. `sees`: what a function asks of events, as SELECTs, where Spark
    could tell when it was imported.
    """

    type: str
    text: str
    window_seconds: int = 0
    slide_seconds: int = 0
    group_by: tuple[str, ...] = ()
    roles: tuple[str, ...] = ("src_endpoint", "device")
    carry: tuple[str, ...] = ()
    confirm: Node | msgspec.UnsetType = msgspec.UNSET
    sees: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET


class RulePack(msgspec.Struct, frozen=True, kw_only=True):
    """The rules that run, data only, sorted by id."""

    format: int = _FORMAT
    rules: tuple[Rule, ...] = ()
    correlations: tuple[Correlation, ...] = ()
    queries: tuple[Query, ...] = ()
    models: tuple[ModelRule, ...] = ()

    @property
    def hash(self) -> str:
        """The first 32 hex digits of the SHA-256 of its canonical JSON."""
        return _hash(self.to_json())

    def to_json(self) -> bytes:
        """Canonical JSON: the same rules give the same bytes.

        A kind that came later and has no rule is left out, so packs from before keep their hash.
        """
        kinds = {name: getattr(self, name) for name in self.__struct_fields__}
        # The hash names the pack in findings and alerts of years, so it must not change with a
        # release.
        lines = {name: kind for name, kind in kinds.items() if kind or name in _FIRST_KINDS}
        return msgspec.json.encode(lines, order="sorted")

    @classmethod
    def from_json(cls, data: bytes) -> RulePack:
        """Read a pack; raises `Fatal` when it is not one, or of a newer format."""
        try:
            pack = msgspec.json.decode(data, type=cls)
        except msgspec.MsgspecError as error:
            raise Fatal(f"not a rule pack: {error}; compile the rules again") from error
        if pack.format > _FORMAT:
            raise Fatal(
                f"rule pack has format {pack.format}, this version reads {_FORMAT}; upgrade "
                "headgate"
            )
        return pack

    def described(self, rule_id: str) -> Described | None:
        """The rule of any kind with that id."""
        every: tuple[Described, ...] = (
            *self.rules,
            *self.correlations,
            *self.queries,
            *self.models,
        )
        for rule in every:
            if rule.id == rule_id:
                return rule
        return None


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]


def content_version(rule: Described) -> str:
    """16 hex digits that change when what the rule says changes, not when its neighbours do."""
    # Left out is what others decide: the settings' levels, and correlations that count the rule.
    bare = msgspec.structs.replace(rule, version="", alerting=False, feeds=(), shadow=msgspec.UNSET)
    return hashlib.sha256(msgspec.json.encode(bare, order="sorted")).hexdigest()[:16]


class Switch(msgspec.Struct, frozen=True):
    """A rule somebody switched off: who, why and when (UTC)."""

    who: str
    reason: str
    at: datetime


class PackStore:
    """Packs in a folder that driver and workers share, and which of them is current.

    `<hash>.json` is a pack and is never rewritten; `current` names the one that
    the next micro-batch uses; `switches.json` lists the rules switched off.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # Lists of indicators lie beside the packs, and a rule finds its list by hash alone.
        look_in(folder)

    def put(self, pack: RulePack) -> str:
        """Keep the pack and return its hash. A pack that is there already is left alone."""
        data = pack.to_json()
        name = _hash(data)
        path = self.folder / f"{name}.json"
        if not path.exists():
            _write(path, data)
        return name

    def get(self, pack_hash: str) -> RulePack:
        """The pack with that hash, read once per process.

        Raises `Fatal` when there is none, or when its content does not have that hash.
        """
        return _read_pack(str(self.folder), pack_hash)

    def current(self) -> str:
        """Hash of the pack in force; raises `Fatal` before the first `set_current`."""
        try:
            return (self.folder / "current").read_text("ascii").strip()
        except FileNotFoundError:
            raise Fatal(
                f"{self.folder}: no current rule pack; the jobs put one in force when they start "
                "(headgate up)"
            ) from None

    def set_current(self, pack_hash: str) -> None:
        """Put a kept pack in force: running jobs use it from their next micro-batch on."""
        # Read first: a pack that is damaged must not come into force.
        self.get(pack_hash)
        _write(self.folder / "current", pack_hash.encode("ascii"))

    def disabled(self) -> dict[str, Switch]:
        """The rules that are switched off, by id."""
        return self._switches().read() or {}

    def disable(self, rule_id: str, who: str, reason: str, at: datetime | None = None) -> None:
        """Note that a rule is off. It takes effect when the rules are compiled next."""
        self.disable_all([rule_id], who, reason, at)

    def disable_all(
        self, rule_ids: Iterable[str], who: str, reason: str, at: datetime | None = None
    ) -> None:
        """Note of several rules at once that they are off."""
        off = Switch(who, reason, at or datetime.now(UTC))
        self._switches().write(self.disabled() | dict.fromkeys(rule_ids, off))

    def enable(self, rule_id: str) -> bool:
        """Note that a rule is on again; False when it was on already."""
        return bool(self.enable_all([rule_id]))

    def enable_all(self, rule_ids: Iterable[str]) -> list[str]:
        """Note of several rules at once that they are on again; those that were off."""
        switches = self.disabled()
        were_off = [rule_id for rule_id in rule_ids if switches.pop(rule_id, None) is not None]
        if were_off:
            self._switches().write(switches)
        return were_off

    def _switches(self) -> StateFile[dict[str, Switch]]:
        return StateFile(
            self.folder / "switches.json",
            dict[str, Switch],
            "put it back from a backup, or remove it, and every rule is on",
            layout=JsonLayout.COMPACT_SORTED,
        )


@lru_cache(maxsize=32)
def _read_pack(folder: str, pack_hash: str) -> RulePack:
    # It becomes a file name; nothing in it may lead out of the folder.
    if not re.fullmatch(r"[0-9a-f]{32}", pack_hash):
        raise Fatal(f"'{pack_hash}' is not a rule pack's hash (32 hex digits)")
    path = Path(folder) / f"{pack_hash}.json"
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise Fatal(f"{path}: no such rule pack; is the folder shared with the workers?") from None
    if _hash(data) != pack_hash:
        raise Fatal(f"{path}: content does not have that hash; remove it and compile again")
    return RulePack.from_json(data)


def _write(path: Path, data: bytes) -> None:
    """Write so that a reader, or a crash, sees the old file or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            # On disk before it has its name: after a power cut the name must not lead to an empty
            # file.
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
