"""A gap is accepted on the console as by the command: exactly what was stated, with a reason."""

from __future__ import annotations

import json
import re
import time

import pytest

from infra.config.settings import load
from infra.kafka.client import Broker, topic_of
from infra.streaming.kafka_offsets import kafka_checkpoint
from tests.console.test_rule_tuning import csrf_of
from tests.console.test_sources import administrator
from tests.ingest.completeness.test_gaps import expire, make, plant, send


@pytest.mark.full
def test_an_administrator_reads_what_is_missing_and_accepts_that_and_no_more(
    broker: Broker, tmp_path
):
    prefix = f"page{time.monotonic_ns()}."
    kafka = {"bootstrap": broker.address, "topic_prefix": prefix, "tick_topic": f"{prefix}tick"}
    settings = load(home=tmp_path, kafka=kafka)
    topic = topic_of("sshd", settings.kafka)
    make(settings, topic, settings.kafka.tick_topic)
    send(settings, "m0", "m1", "m2", "m3")
    plant(settings, {topic: 1})
    expire(settings, 2)
    admin = administrator(settings)
    page = admin.get("/sources/gaps").text
    assert "messages 1 to 1 (1) were deleted by the broker" in page
    stated = re.search(r'name="statement" value="([0-9a-f]{12})"', page)
    assert stated is not None
    form = {"csrf": csrf_of(page), "statement": stated[1], "reason": "disk, ticket 411"}
    # More goes while somebody reads.
    expire(settings, 3)
    late = admin.post("/sources/gaps", data=form)
    assert late.status_code == 422
    assert "that is not what is missing now" in late.text
    assert 'value="disk, ticket 411"' in late.text
    newer = re.search(r'name="statement" value="([0-9a-f]{12})"', late.text)
    assert newer is not None
    accepted = admin.post("/sources/gaps", data=form | {"statement": newer[1]})
    assert accepted.headers["location"] == "/sources?done=gap&job=ingest"
    (kept,) = (json.loads(file.read_text()) for file in (tmp_path / "spool/gap").glob("*.json"))
    assert (kept["accepted_by"], kept["from_offset"], kept["to_offset"]) == ("chandra", 1, 3)
    assert kafka_checkpoint(settings.checkpoint_root / "ingest").offsets[topic, 0] == 3
    assert (tmp_path / "spool/resume/ingest").exists()
