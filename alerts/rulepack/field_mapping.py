"""All log sources and fields that rules may name, as `mapping/*.yml` has them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from alerts.rulepack.event_paths import is_field
from alerts.rulepack.log_source import Alias, ByEvent, LogSource, OwnFields, Unmapped
from infra.errors import Fatal

# The same safe loader, in C where the library has it: each command reads these files.
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

MAPPING_FOLDER = Path(__file__).parents[1] / "mapping"


_OWN_LOG = frozenset({"metadata.log_name", "metadata.log_provider"})


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
