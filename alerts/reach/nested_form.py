"""Sigma's dotted names as a JSON record."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def nested(values: Mapping[str, str], base: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted names as objects within objects, over what every record has."""
    record: dict[str, Any] = json.loads(json.dumps(base))
    for path, value in values.items():
        *outer, last = path.split(".")
        place = record
        for name in outer:
            inner = place.get(name)
            if not isinstance(inner, dict):
                inner = place[name] = {}
            place = inner
        place[last] = typed(value)
    return record


def typed(value: str) -> Any:
    """A value as JSON has it: a truth, a number or a text."""
    # So many digits are a hash or an id.
    number = value.isdecimal() and len(value) < 16
    return {"true": True, "false": False}.get(value, int(value) if number else value)
