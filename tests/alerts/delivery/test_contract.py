"""What consumers rely on: the schemas, that they only grow, and the AsyncAPI document."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

import alerts
from alerts.asyncapi_document import asyncapi_document
from alerts.delivery.alert_message import (
    alert_status,
    change_type,
    published_body,
    published_state,
)
from alerts.lifecycle.alert_json import SCHEMA_VERSION
from infra.config.settings import KafkaSettings
from tests.alerts.lifecycle.test_alert_fold import SCHEMA, Bucket, action, body, finding, leased

ROOT = Path(__file__).resolve().parents[3]
OLD = json.loads((Path(__file__).parent / "contract/alert.schema.1.0.json").read_text("utf-8"))
STATE = json.loads((Path(alerts.__file__).parent / "state.schema.json").read_text("utf-8"))
ASYNC = asyncapi_document(KafkaSettings())
PAGE = (ROOT / "docs/reference/alert.md").read_text("utf-8")

GROWN = {"$.$defs.holder.properties.status: may be 'static'"}
"""Words that were added where docs/reference/alert.md says that words may be added."""


def breaks(old: Any, new: Any, path: str = "$") -> Iterator[str]:
    """What a consumer that knows the schema `old` could trip over in messages that follow `new`."""
    if isinstance(old, bool) or isinstance(new, bool):
        if old is not new:
            yield f"{path}: {old} became {new}"
        return
    for name in set(old.get("required", ())) - set(new.get("required", ())):
        yield f"{path}: '{name}' may be missing"
    for word in [w for w in new.get("enum", ()) if "enum" in old and w not in old["enum"]]:
        yield f"{path}: may be {word!r}"
    for word in ("const", "pattern", "$ref", "$id"):
        if word in old and old[word] != new.get(word):
            yield f"{path}: {word} changed"
    if "enum" in old and "enum" not in new:
        yield f"{path}: any value now"
    kinds, were = new.get("type", ()), old.get("type")
    if were is not None:
        left = set([kinds] if isinstance(kinds, str) else kinds)
        if not left or not left <= set([were] if isinstance(were, str) else were):
            yield f"{path}: type {were} became {kinds or 'any'}"
    for bound, wider in (("minimum", -1), ("minItems", -1), ("minLength", -1), ("maximum", 1),
                         ("maxItems", 1)):  # fmt: skip
        if bound in old and (bound not in new or (new[bound] - old[bound]) * wider > 0):
            yield f"{path}: {bound} is wider"
    for group in ("properties", "$defs"):
        for name, known in old.get(group, {}).items():
            if name not in new.get(group, {}):
                yield f"{path}.{group}.{name}: gone"
            else:
                yield from breaks(known, new[group][name], f"{path}.{group}.{name}")
    if "items" in old:
        yield from breaks(old["items"], new.get("items", {}), f"{path}.items")


def test_the_schema_only_grew_since_its_last_version() -> None:
    assert set(breaks(OLD, SCHEMA)) - GROWN == set()
    assert set(breaks(OLD, SCHEMA)) >= GROWN, "an exception that nothing needs is taken out"
    assert "A status\nyou do not know is to be read as `unknown`" in PAGE


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"required": ["a"]}, {"required": []}),
        ({"enum": ["a"]}, {"enum": ["a", "b"]}),
        ({"enum": ["a"]}, {}),
        ({"type": "string"}, {"type": ["string", "null"]}),
        ({"type": "string"}, {}),
        ({"const": 1}, {"const": 2}),
        ({"minimum": 1}, {"minimum": 0}),
        ({"maxItems": 10}, {"maxItems": 20}),
        ({"minLength": 1}, {}),
        ({"properties": {"a": {}}}, {"properties": {}}),
        ({"properties": {"a": {"type": "string"}}}, {"properties": {"a": {"type": "integer"}}}),
        ({"items": {"type": "string"}}, {"items": {}}),
        ({"$defs": {"x": {"pattern": "a"}}}, {"$defs": {"x": {"pattern": "b"}}}),
    ],
)
def test_each_change_that_breaks_a_consumer_is_seen(old: Any, new: Any) -> None:
    assert list(breaks(old, new))
    assert not list(breaks(old, old))


def test_a_field_more_a_bound_more_or_a_value_less_breaks_nobody() -> None:
    old = {"type": ["string", "null"], "properties": {"a": {"enum": ["x", "y"]}}}
    new = {
        "type": "string",
        "required": ["a"],
        "properties": {"a": {"enum": ["x"], "minLength": 1}, "b": {}},
    }
    assert not list(breaks(old, new))


def told() -> list[dict[str, Any]]:
    """Bodies of many kinds: created, assigned, corrected, superseded, closed."""
    bucket = Bucket()
    rows = bucket.alerts(finding(0), finding(1, leased("bb")), finding(2, leased("cc")))
    rows += bucket.alerts(action(rows[0]["alert_id"], "assign", value="ann"))
    rows += bucket.alerts(finding(0, leased("bb"), rev=2), finding(2, leased("dd"), rev=2))
    rows += bucket.alerts(action(rows[1]["alert_id"], "close", 300, value="benign"))
    return [body(row) for row in rows]


def test_what_is_told_today_follows_the_last_version_of_the_schema_too() -> None:
    last = Draft202012Validator(OLD)
    bodies = told()
    assert {one["activity"] for one in bodies} == {"create", "update", "close"}
    for one in bodies:
        last.validate(one)


NEW_WORDS = ("schema_version", "change_type", "alert_status", "attribution_status")
"""Fields that 1.1 has and 1.0 had not."""


def as_first_told(body: dict[str, Any]) -> dict[str, Any]:
    """A body as 1.0 told it."""
    return {name: value for name, value in body.items() if name not in NEW_WORDS}


def test_the_words_of_now_say_what_the_former_ones_beside_them_say() -> None:
    for one in told():
        assert one["schema_version"] == SCHEMA_VERSION == ASYNC["info"]["version"]
        assert one["change_type"] == one["activity"] == change_type(one)
        assert one["alert_status"] == one["lifecycle"] == alert_status(one)
        assert one["attribution_status"] == one["attribution"]["status"]
    for schema in (SCHEMA, STATE):
        known = schema["properties"]
        former = [name for name, part in known.items() if part.get("deprecated")]
        assert sorted(former) == sorted({"activity", "state", "lifecycle"} & set(known))


def test_a_body_of_before_goes_out_as_it_lies_and_its_state_has_the_words_of_now() -> None:
    validator, now = Draft202012Validator(STATE), "2026-11-21T12:00:00.000Z"
    for one in told():
        old = as_first_told(one)
        Draft202012Validator(SCHEMA).validate(old)
        went = published_body(msgspec.json.encode(old), now)
        assert went == msgspec.json.encode(old | {"published_at": now})
        state = json.loads(published_state(went))
        validator.validate(state)
        new = json.loads(published_state(published_body(msgspec.json.encode(one), now)))
        assert state == new | {"schema_version": "1.0"}
        assert (alert_status(old), change_type(old)) == (one["lifecycle"], one["activity"])


@pytest.mark.parametrize(("state", "status"), [("open", "new"), ("closed", "closed")])
def test_a_body_without_a_lifecycle_has_the_status_of_its_state(state: str, status: str) -> None:
    (one, *_) = told()
    old = {k: v for k, v in as_first_told(one).items() if k != "lifecycle"} | {"state": state}
    assert json.loads(published_state(msgspec.json.encode(old)))["alert_status"] == status
    assert alert_status(old) == status


def test_words_for_one_release_cost_few_bytes() -> None:
    for one in told():
        more = len(msgspec.json.encode(one)) - len(msgspec.json.encode(as_first_told(one)))
        assert 0 < more < 130


def test_the_state_of_every_alert_follows_its_schema() -> None:
    Draft202012Validator.check_schema(STATE)
    validator = Draft202012Validator(STATE)
    for one in told():
        went = published_body(msgspec.json.encode(one), "2026-11-21T12:00:00.000Z")
        validator.validate(json.loads(published_state(went)))
        assert json.loads(published_state(went))["rule_id"] == one["rule"]["id"]


@pytest.mark.parametrize("more", [{}, {"fields": {"published_at": "x"}}, {"published_at": "old"}])
def test_a_body_goes_out_as_it_lies_in_the_table_with_its_time(more: dict[str, Any]) -> None:
    now = "2026-11-21T12:00:00.000Z"
    for one in told():
        hostile = one | {"title": '"published_at":"},\u2028 \\"é'} | more
        went = published_body(msgspec.json.encode(hostile), now)
        assert went == msgspec.json.encode(hostile | {"published_at": now})


def test_the_example_of_the_page_is_part_of_the_whole_one_which_follows_the_schema() -> None:
    (example,) = re.findall(r"## Example.*?```json\n(.*?)```", PAGE, re.DOTALL)
    (whole,) = (each["payload"] for each in ASYNC["components"]["messages"]["alert"]["examples"])
    Draft202012Validator(SCHEMA).validate(whole)
    assert json.loads(example).items() <= whole.items()


def test_the_asyncapi_document_names_the_topics_and_schemas_that_there_are() -> None:
    kafka = KafkaSettings()
    channels = {name: one["address"] for name, one in ASYNC["channels"].items()}
    assert channels.pop("preliminary"), "named by a setting that is empty at first"
    assert channels == {"alerts": kafka.alerts_topic, "alertState": kafka.state_topic}
    messages = ASYNC["components"]["messages"]
    for name, message in messages.items():
        for example in message["examples"]:
            # From the document's root, to which its references are.
            rooted = {"$ref": f"#/components/messages/{name}/payload/schema", **ASYNC}
            Draft202012Validator(rooted).validate(example["payload"])
    for operation in ASYNC["operations"].values():
        assert operation["action"] in ("send", "receive")
        for name in re.findall(r"#/(\S+)", json.dumps(operation)):
            resolved: Any = ASYNC
            for part in name.strip('"}],').split("/"):
                resolved = resolved[part]
            assert resolved


def test_the_asyncapi_document_has_every_header_that_a_message_has() -> None:
    headers = ASYNC["components"]["messages"]["alert"]["headers"]
    told_of = set(headers["properties"])
    assert told_of == {"ce_specversion", "ce_id", "ce_type", "ce_source", "ce_time",
                       "ce_sequence", "content-type"}  # fmt: skip
    assert set(headers["required"]) == told_of


def test_the_asyncapi_document_refers_to_nothing_outside_itself() -> None:
    references = re.findall(r'"\$ref": "([^"]+)"', json.dumps(ASYNC))
    assert len(references) > 50
    for reference in references:
        resolved: Any = ASYNC
        for part in reference.removeprefix("#/").split("/"):
            resolved = resolved[part]
        assert resolved, reference


def test_the_asyncapi_document_tells_the_topics_and_the_broker_of_the_settings() -> None:
    ours = KafkaSettings(
        bootstrap="kafka.example.org:9093", alerts_topic="soc.alerts", preliminary_topic="soc.early"
    )
    document = asyncapi_document(ours)
    assert document["servers"]["broker"]["host"] == "kafka.example.org:9093"
    addresses = {name: channel["address"] for name, channel in document["channels"].items()}
    assert addresses == {
        "alerts": "soc.alerts",
        "alertState": ours.state_topic,
        "preliminary": "soc.early",
    }
    assert asyncapi_document(KafkaSettings())["channels"]["alerts"]["address"] == "alerts"


def undescribed(schema: Any, path: str = "$") -> Iterator[str]:
    """Properties without a word on what they mean."""
    if not isinstance(schema, dict):
        return
    for group in ("properties", "$defs"):
        for name, part in schema.get(group, {}).items():
            if group == "properties" and not part.get("description"):
                yield f"{path}.{name}"
            yield from undescribed(part, f"{path}.{name}")
    for part in [schema.get("items"), *schema.get("oneOf", ()), *schema.get("allOf", ())]:
        yield from undescribed(part, f"{path}[]")


@pytest.mark.parametrize("name", ["alert", "state", "preliminary", "preliminary_answer"])
def test_every_property_of_every_message_is_described(name: str) -> None:
    schema = json.loads((Path(alerts.__file__).parent / f"{name}.schema.json").read_text("utf-8"))
    assert list(undescribed(schema)) == []
    assert list(undescribed({"properties": {"a": {"items": {"properties": {"b": {}}}}}}))
