"""A Sigma log source: which events it means, and where each of its fields is in them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from typing import NamedTuple

from alerts.rulepack.event_paths import event_paths, is_enriched, is_field
from infra.errors import Fatal


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
