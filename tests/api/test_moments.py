"""A time in a request is written as a time: a number is none, wherever it stands."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from pydantic import TypeAdapter, ValidationError

from api.app import create_app
from api.wire.moment import Moment
from infra.config.settings import load


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> FastAPI:
    return create_app(load(home=tmp_path_factory.mktemp("home"), api={"token": "t" * 32}))


@pytest.mark.parametrize("value", [0.5, 0, 1_700_000_000, "0.5", "1e999", True, None, [], "\ud800"])
def test_a_number_is_no_time(value: Any) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Moment).validate_python(value)


def test_half_a_character_in_a_body_is_a_problem_of_its_field(app: FastAPI) -> None:
    client = TestClient(app, raise_server_exceptions=False)
    client.headers["Authorization"] = f"Bearer {'t' * 32}"
    client.headers["Content-Type"] = "application/json"
    for since in (b'"\\ud800"', b"0.5", b"1e999", b"NaN"):
        body = b'{"since": ' + since + b"}"
        answered = client.post("/api/v1/rules/x/preview", content=body)
        assert answered.status_code == 422, answered.text
        assert "since" in answered.text or "JSON" in answered.text


@pytest.mark.full
def test_no_field_that_is_sent_takes_a_number_for_a_time(app: FastAPI) -> None:
    document = app.openapi()
    schemas = document["components"]["schemas"]
    names: set[str] = set()

    def walk(node: Any) -> None:
        for name in set(_references(node)) - names:
            names.add(name)
            walk(schemas[name])

    for operations in document["paths"].values():
        for operation in operations.values():
            walk(operation.get("requestBody", {}))
            for parameter in operation.get("parameters", []):
                # What pydantic itself reads as a date and time takes seconds since 1970 too.
                assert "date-time" not in json.dumps(parameter), parameter
    assert len(names) > 20
    for name in names:
        assert "date-time" not in json.dumps(schemas[name]), name


def _references(node: Any) -> list[str]:
    return [
        part.split('"')[0].rpartition("/")[2] for part in json.dumps(node).split('"$ref": "')[1:]
    ]
