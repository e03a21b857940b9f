"""What `status`, `doctor` and the metrics say of the listener."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from api.observability.listener_metrics import ListenerMetrics
from infra.config.settings import Settings, load
from infra.kafka.acls import grants
from infra.runtime.check_registry import registered_findings
from ingest.listen.listener_status import (
    first_status,
    listener_findings,
    listener_folder,
    write_listener_status,
)

WELL = replace(
    first_status(("tcp 127.0.0.1:5514",)),
    messages={"logs.syslog": 40, "logs.sshd": 2},
    turned_away={"too many connections": 3},
    udp_dropped={"udp 127.0.0.1:514": 7},
)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load(home=tmp_path, listen={"syslog": [{"protocol": "tcp", "port": 5514}]})


def samples(settings: Settings) -> dict[tuple[str, str], float]:
    return {
        (sample.name.removeprefix("headgate_listener_"), *sample.labels.values(), "")[:2]: (
            sample.value
        )
        for family in ListenerMetrics(CollectorRegistry(), settings).collect()
        for sample in family.samples
    }


def test_a_listener_that_never_ran_is_named_and_has_no_metrics(settings: Settings) -> None:
    (finding,) = listener_findings(settings)
    assert (finding.found, finding.remedy is None) == ("it never ran", False)
    assert samples(settings) == {}
    assert not listener_folder(settings).exists()


def test_one_that_runs_tells_what_it_took_and_lost(settings: Settings) -> None:
    write_listener_status(settings, replace(WELL, at=time.time()))
    (finding,) = listener_findings(settings)
    assert finding.remedy is None
    assert finding.found.startswith("42 messages to Kafka since ")
    assert "7 datagrams dropped" in finding.found
    assert "3 connections or requests turned away" in finding.found
    values = samples(settings)
    assert values["up", ""] == 1
    assert values["messages_total", "logs.sshd"] == 2
    assert values["udp_dropped_total", "udp 127.0.0.1:514"] == 7


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"at": 1.0, "waiting_messages": 5}, "it does not run; 5 wait"),
        ({"pid": 2**22 + 1}, "it does not run"),
        ({"waits_seconds": 45.0}, "Kafka took nothing for 45 s"),
    ],
)
def test_one_that_is_ill_is_told_with_a_remedy(
    settings: Settings, change: dict[str, float], words: str
) -> None:
    write_listener_status(settings, replace(WELL, **{"at": time.time(), **change}))
    (finding,) = listener_findings(settings)
    assert finding.found == words
    assert finding.remedy
    assert samples(settings)["up", ""] == 0


def test_a_damaged_status_is_named_and_costs_no_metrics(settings: Settings) -> None:
    write_listener_status(settings, WELL)
    file = listener_folder(settings) / "status.json"
    os.truncate(file, 20)
    (finding,) = listener_findings(settings)
    assert finding.found == "its status cannot be read"
    assert str(file) in (finding.remedy or "")
    assert samples(settings) == {}


def test_only_who_wants_a_listener_hears_of_it(settings: Settings, tmp_path: Path) -> None:
    def about(of: Settings) -> list[str]:
        return [each.found for each in registered_findings(of) if each.what == "listener"]

    assert about(settings) == ["it never ran"]
    assert about(load(home=tmp_path)) == []


def test_its_account_writes_only_its_topics(settings: Settings) -> None:
    own = grants("listener", settings)
    assert {(grant.resource, grant.name) for grant in own} == {("topic", "logs.syslog")}
    assert set(own) <= set(grants("driver", settings))
    apart = settings.model_copy(
        update={"listen": settings.listen.model_copy(update={"with_jobs": False})}
    )
    assert not set(own) & set(grants("driver", apart))
