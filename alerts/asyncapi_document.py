"""What goes over Kafka, as one AsyncAPI 3.0 document that refers to nothing outside itself."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

import alerts
from infra.config.bounded_yaml import yaml_document
from infra.config.settings import KafkaSettings


def asyncapi_document(kafka: KafkaSettings) -> dict[str, Any]:
    """Channels, messages and their schemas, under the topics and the broker of the settings."""
    # A copy of its own each: the cached one is never changed.
    document: dict[str, Any] = json.loads(_whole())
    channels = document["channels"]
    document["servers"]["broker"] |= {
        "host": kafka.bootstrap,
        "description": "kafka.bootstrap of the settings",
    }
    topics = {
        "alerts": kafka.alerts_topic,
        "alertState": kafka.state_topic,
        "preliminary": kafka.preliminary_topic,
    }
    for name, topic in topics.items():
        # Preliminary alerts are off at first; the document tells of them all the same.
        if topic:
            channels[name]["address"] = channels[name]["bindings"]["kafka"]["topic"] = topic
    return document


@cache
def _whole() -> str:
    """The document as JSON, with each schema in the place that named its file."""
    document = yaml_document(_text("asyncapi.yaml"))
    for name, message in document["components"]["messages"].items():
        payload = message["payload"]
        schema = json.loads(_text(payload["schema"]["$ref"]))
        # With an `$id` of its own, "#/..." would mean the schema and not the document.
        schema.pop("$id")
        payload["schema"] = _placed(schema, f"#/components/messages/{name}/payload/schema")
    return json.dumps(document)


def _placed(schema: Any, place: str) -> Any:
    """A schema whose references to itself are to its `place` in the document."""
    if isinstance(schema, dict):
        return {
            key: place + value[1:] if key == "$ref" else _placed(value, place)
            for key, value in schema.items()
        }
    return [_placed(part, place) for part in schema] if isinstance(schema, list) else schema


def _text(name: str) -> str:
    return (files(alerts) / name).read_text("utf-8")
