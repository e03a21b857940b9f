"""`headgate rules schema`: editors take what the compiler takes, and mark what it refuses."""

from __future__ import annotations

import json
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from alerts.compiler.compiler import BUNDLED, compile_rules
from alerts.compiler.correlation_conditions import CORRELATION_TYPES
from alerts.rulepack.locations import BUNDLED_MODELS
from infra.config.settings import load
from tests.alerts.cli.test_rules import run

pytestmark = pytest.mark.full

GOOD: dict[str, Any] = {
    "title": "A login as root",
    "id": "33333333-0000-4000-8000-000000000001",
    "logsource": {"product": "windows", "category": "process_creation"},
    "detection": {
        "tool": {"Image|endswith": "\\x.exe", "user.name": "root"},
        "words": ["one", {"CommandLine|contains": "two"}],
        "condition": "tool or words",
    },
    "level": "high",
}


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> jsonschema.Draft202012Validator:
    """What the command prints."""
    printed = StringIO()
    with redirect_stdout(printed):
        assert run(load(home=tmp_path_factory.mktemp("home")), "schema") == 0
    document = json.loads(printed.getvalue())
    jsonschema.Draft202012Validator.check_schema(document)
    return jsonschema.Draft202012Validator(document)


def test_every_bundled_rule_is_valid(schema: jsonschema.Draft202012Validator) -> None:
    count = 0
    for path in sorted([*BUNDLED.glob("*.yml"), *BUNDLED_MODELS.glob("*.yml")]):
        for document in yaml.safe_load_all(path.read_text("utf-8")):
            # As an editor reads it: a date is a text.
            plain = json.loads(json.dumps(document, default=str))
            assert [error.message for error in schema.iter_errors(plain)] == [], path.name
            count += 1
    assert count > 100


@pytest.mark.parametrize(
    "change",
    [
        {"title": None},
        {"level": "huge"},
        {"status": "good"},
        {"logsource": {"product": "windows", "category": "process_creatoin"}},
        {"logsource": {"product": "windows", "service": "sshd"}},
        {"detection": {"tool": {"Imag|endswith": "x"}, "condition": "tool"}},
        {"detection": {"tool": [{"CommandLin": "x"}], "condition": "tool"}},
        {"detection": {"tool": {"Image": "x"}}},
        {"headgate": {"test": {}}},
        {"headgate": {"tests": {"matches": []}}},
        {"detection": {"tool": {"Image|endwith": "x"}, "condition": "tool"}},
        {"detection": {"tool": {"process.file|endswiht": "x"}, "condition": "tool"}},
        {"levl": "high"},
        {"fasle_positives": ["none"]},
    ],
    ids=str,
)
def test_what_the_compiler_would_refuse_is_marked(
    schema: jsonschema.Draft202012Validator, change: dict[str, Any]
) -> None:
    assert schema.is_valid(GOOD)
    broken = {key: value for key, value in (GOOD | change).items() if value is not None}
    assert not schema.is_valid(broken)


def test_editors_complete_the_fields_of_the_log_source(
    schema: jsonschema.Draft202012Validator,
) -> None:
    text = json.dumps(schema.schema)
    # yaml-language-server, which editors run, completes no key whose schema is `true`.
    assert '"CommandLine": {}' in text
    parts = schema.schema["properties"]["logsource"]["properties"]
    assert "process_creation" in parts["category"]["enum"]
    assert "windows" in parts["product"]["enum"]


COUNTED: dict[str, Any] = {
    "title": "Many of them",
    "id": "33333333-0000-4000-8000-000000000002",
    "level": "high",
}


@pytest.mark.parametrize("kind", CORRELATION_TYPES)
def test_every_type_of_correlation_that_is_offered_compiles(
    schema: jsonschema.Draft202012Validator, tmp_path: Path, kind: str
) -> None:
    field = {"field": "process.pid"} if kind.startswith("value") else {}
    percentile = {"percentile": 90} if kind == "value_percentile" else {}
    counted = COUNTED | {
        "correlation": {
            "type": kind, "rules": ["login"], "group-by": ["Computer"], "timespan": "5m",
            "condition": {"gte": 1} | field | percentile,
        }
    }  # fmt: skip
    rule = GOOD | {"name": "login"}
    assert schema.is_valid(counted)
    (tmp_path / "rules.yml").write_text(yaml.safe_dump_all([rule, counted]), "utf-8")
    compiled = compile_rules([tmp_path])
    assert compiled.refused == ()
    assert [each.type for each in compiled.pack.correlations] == [kind]


@pytest.mark.parametrize(
    "change",
    [
        {"correlation": {"type": "event_cuont", "timespan": "5m"}},
        {"correlation": {"type": "event_count", "timespan": "5m", "condition": {"get": 5}}},
        {"correlation": {"type": "event_count", "timespan": "5m", "groupby": ["src_ip"]}},
        {"correlation": {"type": "event_count", "timespan": "5 minutes"}},
        {"headgate": {"role": "source"}},
        {"headgate": {"type": "indicators"}},
        {"type": "spl"},
    ],
    ids=str,
)
def test_a_slip_in_what_is_completed_is_marked(
    schema: jsonschema.Draft202012Validator, change: dict[str, Any]
) -> None:
    assert schema.is_valid(COUNTED | {"correlation": {"type": "event_count", "timespan": "5m"}})
    assert not schema.is_valid(GOOD | change)


QUERY: dict[str, Any] = {
    "title": "Many refused",
    "id": "33333333-0000-4000-8000-000000000003",
    "type": "sql",
    "window": "10m",
    "group-by": ["scope", "src_ip"],
    "query": "SELECT 1",
    "confirm": {"asset.criticality": ["high"]},
}
MODEL: dict[str, Any] = {
    "title": "Odd hours",
    "id": "33333333-0000-4000-8000-000000000004",
    "type": "model",
    "logsource": {"product": "zeek", "service": "conn"},
    "model": {"role": "src_endpoint", "features": ["bytes_out"], "history": "14d"},
}
FILTER: dict[str, Any] = {
    "title": "Not our scanner",
    "id": "33333333-0000-4000-8000-000000000005",
    "logsource": {"product": "windows", "category": "process_creation"},
    "filter": {"rules": ["x"], "scanner": {"Image|endswith": "s"}, "condition": "not scanner"},
}


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        (QUERY, {"query": None}),
        (QUERY, {"window": "ten minutes"}),
        (QUERY, {"groupby": ["scope"]}),
        (QUERY, {"confirm": {"aset.criticality": ["high"]}}),
        (MODEL, {"logsource": None}),
        (MODEL, {"model": {"feature": ["bytes_out"]}}),
        (MODEL, {"model": {"features": ["bytes"]}}),
        (FILTER, {"filter": {"rules": ["x"]}}),
    ],
    ids=str,
)
def test_queries_models_and_filters_are_completed_too(
    schema: jsonschema.Draft202012Validator, rule: dict[str, Any], change: dict[str, Any]
) -> None:
    assert [error.message for error in schema.iter_errors(rule)] == []
    broken = {key: value for key, value in (rule | change).items() if value is not None}
    assert not schema.is_valid(broken)
