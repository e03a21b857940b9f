"""Our dialect of Sigma as a JSON Schema, so that editors complete log sources and their fields.

Names of fields are those of the log source that stands in the rule, and the columns of
silver.event. The compiler reads names in any case and knows more (`headgate rules list`, `lint`);
a schema that took everything would complete nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Any

import msgspec
from sigma.modifiers import modifier_mapping

from alerts.compiler.correlation_conditions import CORRELATION_TYPES, OPERATORS
from alerts.compiler.correlation_rules import FIRST_SEEN
from alerts.compiler.drafts import ROLES, Own
from alerts.compiler.indicator_lists import INDICATOR
from alerts.compiler.model_rule_files import FEATURES, MODEL
from alerts.compiler.model_rule_files import ROLES as MODEL_ROLES
from alerts.compiler.spark_rule_files import KINDS
from alerts.domain.levels import LEVELS
from alerts.domain.step import STEPS
from alerts.rulebook.style import RULE_KEYS, STATUS
from alerts.rulepack.event_paths import event_paths
from alerts.rulepack.field_mapping import mapping
from alerts.rulepack.log_source import LogSource

_Schema = dict[str, Any]

_TEXT: _Schema = {"type": "string"}
_TEXTS: _Schema = {"type": "array", "items": _TEXT}
# Not `True`: yaml-language-server completes no key whose schema is a boolean.
_ANY: _Schema = {}
_LIST: _Schema = {"type": "array"}
_SPAN: _Schema = {"type": "string", "pattern": "^[0-9]+[smhdwMy]$"}
_MODIFIERS = rf"(\|({'|'.join(sorted(modifier_mapping))}))*"
_ENRICHED = r"(holder|asset|person)\.[^|]+"


def editor_schema() -> _Schema:
    """The schema (draft 2020-12) of one document of a rule file."""
    sources = mapping().logsources
    fields = {key: _fields(source) for key, source in sources.items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Headgate's dialect of Sigma",
        "type": "object",
        "required": ["title", "id"],
        "anyOf": [{"required": [key]} for key in ("detection", "correlation", "filter", "type")],
        "properties": _header() | _kinds() | {"logsource": _logsource(sources)},
        # Sigma lets a rule have keys of anybody's; those that are not read are most often slips.
        "propertyNames": {"enum": sorted(RULE_KEYS)},
        "allOf": [
            *({"if": _typed(kind), "then": {"required": list(keys)}} for kind, keys in _NEEDS),
            *(_fields_of(key, _name(names)) for key, names in fields.items()),
        ],
        "$defs": {_name(names): _selection(names) for names in fields.values()}
        | msgspec.json.schema(Own)["$defs"],
    }


def _header() -> _Schema:
    """Keys of a rule but for its log source."""
    return {
        "title": {"type": "string", "maxLength": 256},
        "id": {"type": "string", "pattern": "^[0-9a-fA-F-]{36}$"},
        "name": _TEXT,
        "status": {"enum": list(STATUS)},
        "description": _TEXT,
        "author": _TEXT,
        "license": _TEXT,
        "date": _TEXT,
        "modified": _TEXT,
        "references": _TEXTS,
        "falsepositives": _TEXTS,
        "tags": _TEXTS,
        "level": {"enum": list(LEVELS)},
        "type": {"enum": [*KINDS, MODEL]},
        "headgate": {
            # Beside what the keys are, which values two of them have.
            "allOf": [
                msgspec.json.schema(Own),
                {
                    "properties": {
                        "role": _any_of(ROLES),
                        "type": {"enum": [INDICATOR, FIRST_SEEN]},
                        "tests": _object(match=_LIST, no_match=_LIST),
                    }
                },
            ]
        },
        "detection": {"type": "object", "required": ["condition"]},
        "correlation": {
            "type": "object",
            "required": ["type", "timespan"],
            "properties": {
                "type": {"enum": list(CORRELATION_TYPES)},
                "rules": {"anyOf": [_TEXT, _TEXTS]},
                "group-by": {"anyOf": [_TEXT, _TEXTS]},
                "timespan": _SPAN,
                "generate": {"type": "boolean"},
                "aliases": {"type": "object"},
                "condition": {"anyOf": [_TEXT, _condition()]},
            },
            "additionalProperties": False,
        },
    }


def _kinds() -> _Schema:
    """Keys of rules that are no detection: SQL, functions, models, filters."""
    return {
        "query": _TEXT,
        "window": _SPAN,
        "slide": _SPAN,
        "group-by": {"anyOf": [_TEXT, _TEXTS]},
        "confirm": {"type": "object", "propertyNames": {"pattern": f"^{_ENRICHED}"}},
        "model": _object(
            role={"enum": list(MODEL_ROLES)},
            features={"type": "array", "items": {"enum": [*FEATURES, STEPS]}, "minItems": 1},
            least={"type": "object", "propertyNames": {"enum": list(FEATURES)}},
            threshold={"type": "number"},
            history={"type": "string", "pattern": "^[0-9]+d$"},
        ),
        "filter": {"type": "object", "required": ["condition"]},
    }


_NEEDS = (("sql", ("query",)), (MODEL, ("logsource",)))
"""What rules of a kind need beside title and id."""


def _typed(kind: str) -> _Schema:
    return {"required": ["type"], "properties": {"type": {"const": kind}}}


def _object(**keys: _Schema) -> _Schema:
    """An object with these keys and no others."""
    return {"type": "object", "properties": keys, "additionalProperties": False}


def _any_of(values: Sequence[str]) -> _Schema:
    """One of the values, or a list of some."""
    known: _Schema = {"enum": list(values)}
    return {"anyOf": [known, {"type": "array", "items": known}]}


def _condition() -> _Schema:
    """A number, a range, or over which fields; an expression over rules is a text."""
    return {
        "type": "object",
        "properties": {key: {"type": "number"} for key in OPERATORS}
        | {"field": {"anyOf": [_TEXT, _TEXTS]}, "percentile": {"type": "number"}},
        "additionalProperties": False,
    }


_Key = tuple[str | None, str | None, str | None]
_PARTS = ("category", "product", "service")


def _logsource(sources: Iterable[_Key]) -> _Schema:
    """A log source that the mapping has; each part completes by itself, too."""
    keys = list(sources)
    parts = {
        part: {"enum": sorted({value for key in keys if (value := key[place])})}
        for place, part in enumerate(_PARTS)
    }
    # Beside category and product any service may stand.
    return {
        "type": "object",
        "properties": {**parts, "service": {"type": "string"}, "definition": _TEXT},
        "anyOf": [_is(key) for key in keys],
    }


def _is(key: _Key) -> _Schema:
    """That a log source is the one with these parts; a category of a product has any service."""
    given = dict(zip(_PARTS, key, strict=True))
    properties: _Schema = {part: {"const": value} for part, value in given.items() if value}
    required = list(properties)
    if not (given["category"] and given["product"]):
        properties |= {part: False for part, value in given.items() if not value}
    else:
        properties.setdefault("service", True)
    return {"properties": properties, "required": required}


def _fields_of(key: _Key, name: str) -> _Schema:
    """Of a log source: what its selections may ask."""
    selections = {
        "properties": {
            "condition": {"anyOf": [_TEXT, _TEXTS]},
            "timeframe": _TEXT,
        },
        "additionalProperties": {"$ref": f"#/$defs/{name}"},
    }
    return {
        "if": {"required": ["logsource"], "properties": {"logsource": _is(key)}},
        "then": {"properties": {"detection": selections}},
    }


def _fields(source: LogSource) -> tuple[str, ...]:
    """Names that a selection may ask; with '' among them also others, looked for in JSON."""
    return (*(("",) if source.rest else ()), *sorted({*source.fields, *source.by_event}))


def _name(names: tuple[str, ...]) -> str:
    """Log sources with the same fields share a definition."""
    return f"fields_{sha256(repr(names).encode()).hexdigest()[:12]}"


def _selection(names: tuple[str, ...]) -> _Schema:
    """Fields with values, alternatives of them, or words to look for anywhere."""
    own = [name for name in names if name]
    fields: _Schema = {
        "type": "object",
        "properties": dict.fromkeys(own, _ANY),
        "propertyNames": {"pattern": f"^[^|]*{_MODIFIERS}$"},
    }
    if "" not in names:
        known = "|".join(re.escape(name) for name in (*own, *sorted(event_paths())))
        # Of a column that holds JSON, and of lists, any place inside.
        fields["patternProperties"] = {rf"^({known}|{_ENRICHED})([.\[][^|]*)?{_MODIFIERS}$": True}
        fields["additionalProperties"] = False
    word: _Schema = {"type": ["string", "number"]}
    return {"anyOf": [fields, word, {"type": "array", "items": {"anyOf": [fields, word]}}]}
