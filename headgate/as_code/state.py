"""States as plain values, and what tells two of them apart. No file is read or written here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

ObjectValues = dict[str, Any]
"""What an object says, as JSON has it."""

Objects = dict[str, ObjectValues]
"""The objects of one kind, by name."""

ConfigState = dict[str, Objects]
"""All objects, by kind. A kind that is not there has none."""


class ConfigChange(msgspec.Struct, frozen=True):
    """One object that differs. `before` None: it is new; `after` None: it goes."""

    kind: str
    name: str
    before: ObjectValues | None
    after: ObjectValues | None

    @property
    def action(self) -> str:
        """`add`, `change` or `remove`."""
        if self.before is None:
            return "add"
        return "remove" if self.after is None else "change"


class FieldChange(NamedTuple):
    """One value that differs, by its dotted name; None where there is none."""

    field: str
    before: Any
    after: Any


def diff_states(before: ConfigState, after: ConfigState) -> tuple[ConfigChange, ...]:
    """What makes the one state the other, by kind and name: the order of neither state matters."""
    old, new = _by_key(before), _by_key(after)
    return tuple(
        ConfigChange(*key, old.get(key), new.get(key))
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    )


def patched_state(state: ConfigState, changes: Iterable[ConfigChange]) -> ConfigState:
    """The state with changes made to it; kinds without an object are left out."""
    objects = _by_key(state)
    for change in changes:
        objects.pop((change.kind, change.name), None)
        if change.after is not None:
            objects[change.kind, change.name] = change.after
    patched: ConfigState = {}
    for (kind, name), values in sorted(objects.items(), key=lambda item: item[0]):
        patched.setdefault(kind, {})[name] = values
    return patched


def field_changes(
    change: ConfigChange, described: Callable[[ObjectValues], Any] = lambda values: values
) -> tuple[FieldChange, ...]:
    """The values in which an object differs, by name.

    `described` gives what a person compares, such as a rule's keys instead of its text. Where that
    is equal, the values themselves are compared: a comment was changed.
    """
    before, after = change.before or {}, change.after or {}
    read = [{} if v is None else _flat(described(v)) for v in (change.before, change.after)]
    # The last is for names with dots in them, which look like mappings inside of mappings.
    for old, new in (read, (_flat(before), _flat(after)), (before, after)):
        names = sorted(old.keys() | new.keys())
        # A key without a value is not the same as no key.
        differing = [n for n in names if old.get(n) != new.get(n) or (n in old) != (n in new)]
        if differing:
            return tuple(FieldChange(name, old.get(name), new.get(name)) for name in differing)
    return ()


def _by_key(state: ConfigState) -> dict[tuple[str, str], ObjectValues]:
    return {(kind, name): values for kind in state for name, values in state[kind].items()}


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    """Mappings inside of mappings by dotted names; lists stay whole, in their order."""
    # An empty mapping inside is a value: it differs from no key at all.
    if not isinstance(value, Mapping) or (name and not value):
        return {name: value}
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        flat |= _flat(inner, f"{name}.{key}" if name else str(key))
    return flat
