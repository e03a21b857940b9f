"""Objects of the Kubernetes API held against what that API publishes (see kubernetes/NOTICE.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

SCHEMA = Path(__file__).parent / "kubernetes" / "v1.34.json"


@cache
def _schema() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(SCHEMA.read_text("utf-8"))
    return found


@cache
def _validator(kind: str) -> Draft202012Validator:
    schema = _schema()
    return Draft202012Validator({**schema["kinds"][kind], "$defs": schema["$defs"]})


def defects(one: Mapping[str, Any]) -> list[str]:
    """What the API would refuse in an object; a kind that is not in the schema is refused too."""
    if one["kind"] not in _schema()["kinds"]:
        return [f"{one['kind']}: not in {SCHEMA.name}"]
    found = _validator(one["kind"]).iter_errors(dict(one))
    return [f"{one['kind']} {'/'.join(map(str, e.absolute_path))}: {e.message}" for e in found]
