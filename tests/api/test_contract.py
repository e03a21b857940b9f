"""Every operation of the description, asked with whatever somebody may send, answers as described:
no fault of the server, each error a problem, each answer in the described form."""

from __future__ import annotations

import json
import math
from typing import Any
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

HOSTILE = ["", " ", "\x00", "é", "\ud800", "1e999", "NaN", "-24h", "0001-01-01T00:00:00+14:00",
           "9999-12-31T23:59:59-14:00", "' OR 1=1 --", "*", "%", "../../etc/passwd", "x" * 300,
           "10.0.0.1", "fe80::1%eth0", "2026-11-20T12:00:00Z", "now", "none", "me", "true",
           "1" * 30, "alert-1"]  # fmt: skip
NOT_ASKED = {"GET /api/v1/alerts/stream"}
"""Never ends, so it has a test of its own."""

texts = st.sampled_from(HOSTILE) | st.text(max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


class Description:
    """What the API says of itself, fetched once: it is long, and examples are many."""

    def __init__(self, client: TestClient) -> None:
        self.spec: dict[str, Any] = client.get("/api/v1/openapi.json").json()
        self.operations: list[tuple[str, str, dict[str, Any]]] = [
            (method.upper(), path, operation)
            for path, methods in self.spec["paths"].items()
            for method, operation in methods.items()
            if f"{method.upper()} {path}" not in NOT_ASKED
        ]
        resource = Resource(contents=self.spec, specification=DRAFT202012)
        self.registry = Registry().with_resource("urn:spec", resource)


@pytest.fixture(scope="module")
def described(client: TestClient) -> Description:
    return Description(client)


def bodies(schema: dict[str, Any], spec: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Bodies that have the names of the described ones, and any values."""
    named = schema.get("$ref", "").rpartition("/")[2]
    fields = spec["components"]["schemas"].get(named, schema).get("properties", {})
    return st.fixed_dictionaries({}, optional=dict.fromkeys(fields, values)) | values


def send(
    data: st.DataObject, client: TestClient, described: Description, share: float
) -> tuple[dict[str, Any], Any]:
    """An operation and what it answered."""
    index = math.floor(share * len(described.operations))
    method, path, operation = described.operations[index]
    for name in [one["name"] for one in operation.get("parameters", []) if one["in"] == "path"]:
        text = data.draw(texts.filter(bool), label=name)
        path = path.replace(f"{{{name}}}", quote(text.encode("utf-8", "surrogatepass"), safe=""))
    known = [one["name"] for one in operation.get("parameters", []) if one["in"] == "query"]
    query = data.draw(
        st.lists(st.tuples(st.sampled_from([*known, "unknown"]), texts), max_size=3), label="query"
    )
    pairs = "&".join(f"{k}={quote(v.encode('utf-8', 'surrogatepass'))}" for k, v in query)
    headers = {"If-Match": "*"} if method == "PATCH" else {}
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    body = None
    if content is not None:
        drawn = data.draw(bodies(content["schema"], described.spec), label="body")
        body = json.dumps(drawn).encode()
        headers["Content-Type"] = "application/json"
    answered = client.request(method, f"{path}?{pairs}", content=body, headers=headers)
    return operation, answered


def check(described: Description, operation: dict[str, Any], answered: Any) -> None:
    assert answered.status_code < 500 or answered.status_code == 503, answered.text
    if answered.status_code >= 400:
        assert answered.headers["content-type"] == "application/problem+json"
        assert answered.json()["status"] == answered.status_code
        return
    forms = operation["responses"][str(answered.status_code)].get("content", {})
    if "application/json" in forms and answered.content:
        schema = _absolute(forms["application/json"]["schema"])
        Draft202012Validator(schema, registry=described.registry).validate(answered.json())


def _absolute(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {
            key: f"urn:spec{value}" if key == "$ref" else _absolute(value)
            for key, value in schema.items()
        }
    return [_absolute(one) for one in schema] if isinstance(schema, list) else schema


@examples(max_examples=30, suppress_health_check=list(HealthCheck))
@given(data=st.data(), share=st.floats(0, 1, exclude_max=True))
def test_whatever_is_sent_is_answered_as_described(
    client: TestClient, described: Description, data: st.DataObject, share: float
) -> None:
    operation, answered = send(data, client, described, share)
    check(described, operation, answered)


@pytest.mark.full
@examples(max_examples=600, suppress_health_check=list(HealthCheck))
@given(data=st.data(), share=st.floats(0, 1, exclude_max=True))
def test_whatever_is_sent_long_enough_is_answered_as_described(
    client: TestClient, described: Description, data: st.DataObject, share: float
) -> None:
    operation, answered = send(data, client, described, share)
    check(described, operation, answered)
