"""Which events a Sigma log source means, and where its fields are (`mapping/*.yml`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from alerts.rulepack.derived_fields import inputs
from enrich.tables_assets import ASSET, PERSON
from infra.delta.column_types import ColumnType, ListOf, StructOf
from infra.errors import Fatal
from ingest.tables import EVENT

# The same safe loader, in C where the library has it: each command reads these files.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

MAPPING_FOLDER = Path(__file__).parents[1] / "mapping"


class Unmapped(Fatal):
    """A rule names a log source or field we have no column for; `remedy` says what is close."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.remedy = remedy


UNKNOWN = "?"
"""Stands for the column of a field in events that no parser knows."""


class Place(NamedTuple):
    """Where a field is in some events: in the first of `paths` that has a value, or in `any`.

    The events are those with one of the codes `only` (None: all), or none of `without`.
    """

    paths: tuple[str, ...]
    only: frozenset[str] | None = None
    without: frozenset[str] = frozenset()
    any: bool = False


@dataclass(frozen=True)
class ByEvent:
    """Columns of a field by event code; `known` are all codes that a parser knows."""

    columns: Mapping[str, str]
    known: frozenset[str]


class Alias(NamedTuple):
    """Names that begin with `before` mean those with `path` in its place, in camelCase if `camel`:
    `gcp.audit.method_name` is `protoPayload.methodName`."""

    before: str
    path: str
    camel: bool

    def meant(self, name: str) -> str | None:
        """The name that is meant; None where `name` does not begin so."""
        start, rest = name[: len(self.before) + 1], name[len(self.before) + 1 :]
        if start.lower() != f"{self.before.lower()}." or not rest:
            return None
        if self.camel:
            rest = _SNAKE.sub(lambda match: match[1].upper(), rest)
        return f"{self.path}.{rest}" if self.path else rest


_SNAKE = re.compile(r"_([a-z])")


@dataclass(frozen=True)
class LogSource:
    """The events a rule looks at and its field names.

    `classes` and `sources` say which events (none: all). Of the mappings in `where`
    one must hold besides, each of its paths with one of the texts named. `rest` is
    the JSON column where fields that `fields` lacks are looked for. `by_event` are fields
    that different events have in different columns, `several` those that may be in several
    places of one event (in lower case). `foreign` are fields that only other logs of the product
    have. `closed` are all names that can follow a path, by that path, `""` for those a record
    begins with (a path that is not there: not known), with their usual spelling. All but that in
    lower case. A name that begins with one of `aliases` stands for another; an unknown one may
    stand in the object `within` as well. `logs`: of a product as a whole, its logs that have
    fields of their own.
    """

    classes: tuple[int, ...] = ()
    sources: tuple[str, ...] = ()
    fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    where: tuple[Mapping[str, tuple[str, ...]], ...] = ()
    rest: str | None = None
    by_event: Mapping[str, ByEvent] = field(default_factory=dict)
    several: frozenset[str] = frozenset()
    foreign: frozenset[str] = frozenset()
    closed: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    aliases: tuple[Alias, ...] = ()
    within: str | None = None
    logs: tuple[OwnFields, ...] = ()

    @cached_property
    def _by_event_folded(self) -> Mapping[str, ByEvent]:
        return {name.lower(): cases for name, cases in self.by_event.items()}

    def places(self, name: str, codes: frozenset[str] | None = None) -> tuple[Place, ...]:
        """Where a field is, by event code; `codes` are those a rule can mean (None: any).

        Raises `Unmapped` as `paths` does.
        """
        cases = self.by_event.get(name) or self._by_event_folded.get(name.lower())
        if cases is None:
            return (Place(self.paths(name), any=name.lower() in self.several),)
        rest = f"unmapped:{name}"
        if codes is not None:
            by_column: dict[str | None, set[str]] = {}
            for code in codes:
                # Of an event no parser knows, the columns that were ever named for the field.
                column = cases.columns.get(code) if code in cases.known else UNKNOWN
                by_column.setdefault(column, set()).add(code)
            every = [
                Place(self._with_rest(name, column), frozenset(numbers))
                for column, numbers in sorted(by_column.items(), key=str)
            ]
            # Where all codes have the field in one column they decide nothing.
            return tuple(every) if len(every) > 1 else (every[0]._replace(only=None),)
        ids: dict[str, set[str]] = {}
        for code, column in cases.columns.items():
            ids.setdefault(column, set()).add(code)
        taken = (Place((column,), frozenset(n)) for column, n in sorted(ids.items()))
        unknown = tuple(path for path in self._with_rest(name, UNKNOWN) if path != rest)
        return (
            *taken,
            # Windows writes `-` for no value, which a parser leaves in the rest.
            Place((rest,)),
            *((Place(unknown, None, cases.known),) if unknown else ()),
        )

    def _with_rest(self, name: str, column: str | None) -> tuple[str, ...]:
        rest = f"unmapped:{name}"
        if column == UNKNOWN:
            mapped = self.fields.get(name) or self._folded.get(name.lower())
            return tuple(dict.fromkeys((*(mapped or ()), rest)))
        return (rest,) if column is None else (column, rest)

    @cached_property
    def _folded(self) -> Mapping[str, tuple[str, ...]]:
        return {name.lower(): paths for name, paths in self.fields.items()}

    def paths(self, name: str) -> tuple[str, ...]:
        """Where a Sigma field may be in an event; raises `Unmapped` with close names.

        Names of the log source are compared without regard to case, as products differ in it.
        """
        if is_enriched(name):
            return (name,)
        # The exact name first: two fields may differ in case alone.
        mapped = self.fields.get(name) or self._folded.get(name.lower())
        if mapped is not None:
            return mapped
        cases = self.by_event.get(name) or self._by_event_folded.get(name.lower())
        if cases is not None:
            return (*dict.fromkeys(cases.columns.values()), f"unmapped:{name}")
        if is_field(name):
            return (name,)
        if self.rest is not None:
            own = self.own_name(name)
            if own != name:
                return self.paths(own)
            why = self._impossible(name)
            if why is not None:
                raise Unmapped(
                    f"no event of this log source has a field '{name}'",
                    f"{why}; if yours has it, write `{self.rest}:{name}`",
                )
            meant = self._misspelt(name)
            if meant:
                raise Unmapped(
                    f"no field '{name}' in events of this log source",
                    f"did you mean {meant}? If the source has both, write `{self.rest}:{name}`",
                )
            return tuple(f"{self.rest}:{path}" for path in self._unknown(name))
        close = get_close_matches(name, (*self.fields, *event_paths()), n=3, cutoff=0.5)
        meant = f"did you mean {' or '.join(close)}? " if close else ""
        raise Unmapped(
            f"no field '{name}' in silver.event",
            f"{meant}Map it in alerts/mapping for this log source, or write the column "
            f"(`headgate tables`), or `unmapped:{name}` where the source keeps it",
        )

    def own_name(self, name: str) -> str:
        """The record's own name for one that a shipper has made of it; else the name itself."""
        return next(filter(None, (alias.meant(name) for alias in self.aliases)), name)

    def _unknown(self, name: str) -> Iterator[str]:
        """Where in a record a field may stand that is not known."""
        yield name
        if self.within is None:
            return
        inside = name
        if name.lower().startswith(f"{self.within}."):
            inside = name[len(self.within) + 1 :]
        small = ".".join(step[:1].lower() + step[1:] for step in inside.split("."))
        capital = inside[:1].upper() + inside[1:]
        # The parameters of what an administrator of Workspace does are in capitals.
        every = (inside, small, capital, inside.upper())
        forms = (f"{self.within}.{form}" for form in every)
        yield from (form for form in dict.fromkeys(forms) if form != name)

    def _impossible(self, name: str) -> str | None:
        """Why no event can have a field of this name; None where one may."""
        lowered = name.lower()
        if lowered in self.foreign:
            return "another log of the product does"
        steps = lowered.split(".")
        for depth in range(len(steps)):
            before = ".".join(steps[:depth])
            known = self.closed.get(before)
            if known is None or steps[depth] in known:
                continue
            close = get_close_matches(steps[depth], known, n=1, cutoff=0.7)
            usual = name.split(".")[:depth] + [known[step] for step in close]
            meant = f"did you mean '{'.'.join(usual)}'? " if close else ""
            where = (
                f"'{'.'.join(name.split('.')[:depth])}' has" if before else "its records begin with"
            )
            return f"{meant}{where} {', '.join(sorted(known.values(), key=str.lower))}"
        return None

    def _misspelt(self, name: str) -> str | None:
        """The known field that a name differs from in one letter, as by a slip of the hand."""
        # Short names are close to each other by nature, as are numbered ones and plurals.
        if len(name) < _LONG or "." in name:
            return None
        lowered = name.lower()
        for known in (*self.fields, *self.by_event):
            if _one_slip(lowered, known.lower()):
                return known
        return None

    def path(self, name: str, codes: frozenset[str] | None = None) -> str:
        """The one column of a Sigma field, for what can only look at one; raises `Unmapped`.

        Of an account, which is two, the name.
        """
        paths = [path for place in self.places(name, codes) for path in place.paths]
        named = [f"{path[:-1]}.name" if path.endswith("@") else path for path in paths]
        plain = [path for path in named if path in event_paths()]
        if not plain:
            raise Unmapped(
                f"field '{name}' is no column of its own",
                "group and count by a column of silver.event (`headgate tables`)",
            )
        return plain[0]


class OwnFields(NamedTuple):
    """A log of a product, and the names (in lower case) that it puts elsewhere than others do."""

    log: LogSource
    names: frozenset[str]


_OWN_LOG = frozenset({"metadata.log_name", "metadata.log_provider"})
_LONG = 8
"""Letters from which on a name that differs in one letter is a slip."""


def _one_slip(name: str, known: str) -> bool:
    """Whether one letter is left out, doubled, wrong, or two are swapped; digits are no letters."""
    if name == known or abs(len(name) - len(known)) > 1:
        return False
    start = next((i for i, (a, b) in enumerate(zip(name, known, strict=False)) if a != b), None)
    if start is None:
        # A letter more at the end is another name more often than a slip: EventIdx,
        # SubjectUserSids. One less is a slip, but for a plural's.
        return len(name) < len(known) and known[-1].isalpha() and known[-1] != "s"
    a, b = name[start:], known[start:]
    changed = a[:1] + b[:1]
    if not changed.isalpha():
        return False
    return a[1:] == b[1:] or a[1:] == b or a == b[1:] or (a[:2] == b[:2][::-1] and a[2:] == b[2:])


@dataclass(frozen=True)
class FieldMapping:
    """All of `mapping/*.yml`."""

    logsources: Mapping[tuple[str | None, str | None, str | None], LogSource]
    keywords: tuple[str, ...]

    def logsource(
        self, category: str | None, product: str | None, service: str | None
    ) -> LogSource:
        """The entry that equals a rule's log source; raises `Unmapped`.

        A category of a product is the same whichever service is named beside it.
        """
        of, by, part = (word.lower() if word else None for word in (category, product, service))
        logsources = self.logsources.get((of, by, part))
        # Public rules name a service beside a category; the category says enough.
        if logsources is None and of and by:
            logsources = self.logsources.get((of, by, None))
        if logsources is not None:
            return logsources
        wanted = _spell(category, product, service)
        known = [_spell(*key) for key in self.logsources]
        close = get_close_matches(wanted, known, n=3, cutoff=0.4) or known[:3]
        raise Unmapped(
            f"no log source '{wanted}'", f"close ones are {'; '.join(close)} (alerts/mapping)"
        )


def _spell(category: str | None, product: str | None, service: str | None) -> str:
    named = {"category": category, "product": product, "service": service}
    return ", ".join(f"{key}: {value}" for key, value in named.items() if value)


@lru_cache(maxsize=1)
def mapping() -> FieldMapping:
    """The mapping that comes with Headgate: all files of the folder as one."""
    return read_mapping(mapping_data())


def mapping_data() -> dict[str, Any]:
    """The files of the folder joined, as they are written."""
    whole: dict[str, Any] = {
        "logsources": [], "fields": {}, "groups": {}, "keywords": [], "places": {},
        "only_in": {}, "closed": {}, "aliases": {}, "within": {},
    }  # fmt: skip
    for file in sorted(MAPPING_FOLDER.glob("*.yml")):
        for key, value in yaml.load(file.read_text("utf-8"), _Loader).items():
            if isinstance(value, dict):
                # The order of files must not decide what a field means.
                twice = sorted(whole[key].keys() & value.keys())
                if twice:
                    raise Fatal(f"{file.name}: {key}.{twice[0]} stands in another file too")
                whole[key] |= value
            else:
                whole[key] += value
    return whole


def read_mapping(data: Mapping[str, Any]) -> FieldMapping:
    """Check and index a mapping; raises `Fatal` that names a path silver.event lacks."""
    lists: dict[str, dict[str, tuple[str, ...]]] = {}
    by_event = {name: _by_event(name, traced) for name, traced in data.get("places", {}).items()}
    several: dict[str, set[str]] = {}
    for name, fields in data["fields"].items():
        lists[name] = {sigma: _listed(_every(paths)) for sigma, paths in fields.items()}
        several[name] = {s.lower() for s, p in fields.items() if isinstance(p, dict) and "any" in p}
        for sigma, paths in lists[name].items():
            _known(paths, f"fields.{name}.{sigma}")
    _known(data["keywords"], "keywords")
    logsources = {}
    for entry in data["logsources"]:
        key = (entry.get("category"), entry.get("product"), entry.get("service"))
        if key in logsources:
            raise Fatal(f"mapping: log source '{_spell(*key)}' stands there twice")
        logsources[key] = _entry(
            entry, lists, data.get("groups", {}), _spell(*key), by_event, several, data
        )
    for (category, product, service), whole in logsources.items():
        if product and not category and not service:
            logs = tuple(_own_fields(product, data, logsources, lists, by_event))
            logsources[category, product, service] = replace(whole, logs=logs)
    return FieldMapping(logsources, tuple(data["keywords"]))


_PLAIN = "win_plain"
"""The list of what is read of events without a mapping of their own."""


def _own_fields(
    product: str,
    data: Mapping[str, Any],
    logsources: Mapping[tuple[str | None, str | None, str | None], LogSource],
    lists: Mapping[str, Mapping[str, tuple[str, ...]]],
    by_event: Mapping[str, Mapping[str, ByEvent]],
) -> Iterator[OwnFields]:
    """The logs of a product with lists of fields that its own entry has not."""
    entries = {(e.get("category"), e.get("product"), e.get("service")): e
               for e in data["logsources"]}  # fmt: skip
    whole = logsources[None, product, None]
    shared = {*entries[None, product, None].get("fields", ()), _PLAIN}
    marked = any(e.get("where") for (_, of, service), e in entries.items()
                 if of == product and service)  # fmt: skip
    for (category, of, service), entry in entries.items():
        if of != product or category or not service:
            continue
        log = logsources[category, of, service]
        if log.sources and whole.sources and not {*log.sources} & {*whole.sources}:
            continue
        # One that takes in what other logs are told apart by, as `auth` does `sshd` and `sudo`.
        if marked and not log.where and {*log.sources} <= {*whole.sources}:
            continue
        own = [name for name in entry.get("fields", ()) if name not in shared]
        names = {name.lower() for listed in own
                 for name in (*lists[listed], *by_event.get(listed, ()))}  # fmt: skip
        if names:
            yield OwnFields(log, frozenset(names))


def _entry(
    entry: Mapping[str, Any],
    lists: Mapping[str, Mapping[str, tuple[str, ...]]],
    groups: Mapping[str, list[str]],
    spelt: str,
    by_event: Mapping[str, Mapping[str, ByEvent]],
    several: Mapping[str, set[str]],
    known: Mapping[str, Any],
) -> LogSource:
    """One log source, with its field lists joined; of two that name a field the later holds."""
    conditions = entry.get("where", [])
    where = tuple(
        {path: _listed(texts) for path, texts in condition.items()}
        for condition in (conditions if isinstance(conditions, list) else [conditions])
    )
    for condition in where:
        _known(condition, f"where of {spelt}")
    missing = [name for name in entry.get("fields", ()) if name not in lists]
    if missing:
        raise Fatal(f"mapping: {spelt}: no field list '{missing[0]}'; known are {sorted(lists)}")
    cases: dict[str, ByEvent] = {}
    either: set[str] = set()
    for name in entry.get("fields", ()):
        # A later list that names a field decides alone where it is.
        cases = {field: case for field, case in cases.items() if field not in lists[name]}
        cases |= by_event.get(name, {})
        either = {field for field in either if field not in {f.lower() for f in lists[name]}}
        either |= several[name]
    for name in entry.get("fields", ())[:1]:
        cases |= _with_header(lists[name], cases)
    # A log with a channel or provider of its own has no fields that only Sysmon writes.
    named = any(condition.keys() & _OWN_LOG for condition in where)
    of_log = entry.get("product") if named else None
    return LogSource(
        classes=tuple(entry.get("classes", ())),
        sources=tuple(s for name in entry.get("sources", ()) for s in groups.get(name, [name])),
        fields={k: v for name in entry.get("fields", ()) for k, v in lists[name].items()},
        where=where,
        rest=entry.get("rest"),
        by_event=cases,
        several=frozenset(either),
        foreign=frozenset(name.lower() for name in known.get("only_in", {}).get(of_log, ())),
        within=known.get("within", {}).get(entry.get("fields", [""])[-1]),
        aliases=_aliases(known.get("aliases", {}).get(entry.get("fields", [""])[-1], {})),
        closed=_closed(known.get("closed", {}).get(entry.get("fields", [""])[-1], {})),
    )


def _aliases(written: Mapping[str, Any]) -> tuple[Alias, ...]:
    return tuple(
        Alias(before, to["path"], to.get("camel", False))
        if isinstance(to, dict)
        else Alias(before, to, False)
        for before, to in written.items()
    )


def _closed(names: Any) -> dict[str, dict[str, str]]:
    """The names by what stands before them; a list: those that a record begins with."""
    by_path = names if isinstance(names, dict) else {"": names}
    return {
        path.lower(): {str(name).lower(): str(name) for name in after}
        for path, after in by_path.items()
    }


def _with_header(
    header: Mapping[str, tuple[str, ...]], cases: Mapping[str, ByEvent]
) -> dict[str, ByEvent]:
    """The fields of all events that some have among their data as well, such as `Channel`."""
    return {
        name: ByEvent(dict.fromkeys(cases[name].known, header[name][0]) | dict(cases[name].columns),
                      cases[name].known)
        for name in header.keys() & cases.keys()
        if not header[name][0].startswith("unmapped:")
    }  # fmt: skip


def _by_event(name: str, traced: Mapping[str, Any]) -> dict[str, ByEvent]:
    """The columns of each field in one list by event code; spans as `4624, 4720-4726`."""
    known = frozenset(_codes(traced["event_ids"]))
    fields = {}
    for sigma, columns in traced["fields"].items():
        _known(columns, f"places.{name}.{sigma}")
        by_code: dict[str, str] = {}
        for path, ids in columns.items():
            for code in _codes(ids):
                # Of two one would never be asked.
                if code in by_code:
                    raise Fatal(
                        f"mapping: places.{name}.{sigma}: event {code} stands in two columns; "
                        f"name its places under fields.{name} with `first:` or `any:`"
                    )
                by_code[code] = path
        fields[sigma] = ByEvent(by_code, known)
    return fields


def _codes(spans: str) -> Iterator[str]:
    for span in str(spans).split(", "):
        first, _, last = span.partition("-")
        yield from map(str, range(int(first), int(last or first) + 1))


def _every(paths: Any) -> Any:
    """The places of a field, written as a path, a list, or a list under `any:` or `first:`."""
    if not isinstance(paths, dict):
        return paths
    if len(paths) != 1 or not paths.keys() <= {"any", "first"}:
        raise Fatal(f"mapping: {paths}: places are a list, or one under `any:` or `first:`")
    return next(iter(paths.values()))


def _listed(value: Any) -> tuple[str, ...]:
    return tuple(str(word) for word in value) if isinstance(value, list) else (str(value),)


def _known(paths: Iterable[str], where: str) -> None:
    for path in paths:
        if not is_field(path):
            raise Fatal(f"mapping: {where}: silver.event has no '{path}'")


ENRICHED = {
    "holder": frozenset({"mac", "hostname", "status", "scope", "certainty"}),
    "asset": frozenset(ASSET.names),
    "person": frozenset(PERSON.names),
}
"""What a rule may ask of whom an event is about: the device that held its address, and what the
inventories say of that device and of the user (`alerts/compiler/enrichment_predicates.py`)."""


def is_enriched(name: str) -> bool:
    """Whether a field is of whom the event is about, and not of the event itself."""
    about, _, field = name.partition(".")
    return field in ENRICHED.get(about, ())


def is_field(name: str) -> bool:
    """Whether it is a column of silver.event, or written as derived from some."""
    try:
        return all(path in event_paths() for path in inputs(name))
    except ValueError:
        return False


@lru_cache(maxsize=1)
def event_paths() -> frozenset[str]:
    """Every path of silver.event that holds a value, such as `src_endpoint.ip`.

    A path crosses a list without a mark: `answers.rdata` is all of them.
    """
    return frozenset(path for column in EVENT.columns for path in _leaves(column.name, column.type))


@lru_cache(maxsize=1)
def number_paths() -> frozenset[str]:
    """Those of `event_paths` that hold whole numbers."""
    return frozenset(
        path
        for column in EVENT.columns
        for path in _leaves(column.name, column.type, ("integer", "long"))
    )


def _leaves(path: str, kind: ColumnType, of: tuple[str, ...] = ()) -> list[str]:
    if isinstance(kind, ListOf):
        return _leaves(path, kind.element, of)
    if isinstance(kind, StructOf):
        return [leaf for f in kind.fields for leaf in _leaves(f"{path}.{f.name}", f.type, of)]
    return [path] if not of or kind.jsonValue() in of else []
