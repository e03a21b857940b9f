"""MISP's attributes become an indicator list: by REST, and from a feed of files."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pymisp import PyMISP

from alerts.feeds import misp
from alerts.feeds.feed_state import feed_findings
from infra.config.settings import Settings, load
from tests.alerts.feeds.misp_server import KEY, STARTED, MispServer
from tests.alerts.feeds.test_taxii import RULE, listed, run

MD5, SHA1, SHA256 = "a" * 32, "b" * 40, "c" * 64
SOUGHT: dict[str, Any] = {"to_ids": True}
NOT_SOUGHT: dict[str, Any] = {"to_ids": False}


@pytest.fixture
def server() -> Iterator[MispServer]:
    running = MispServer()
    yield running
    running.stop()


def settings_of(home: Path, server: MispServer, **more: Any) -> Settings:
    rules = home / "rules"
    rules.mkdir(exist_ok=True)
    (rules / "rule.yml").write_text(RULE)
    feed = {"name": "partner", "url": f"{server.url}/", "secret": KEY} | more
    own = {"bundled": False, "rules": [str(rules)]}
    return load(home=home / "home", alerts=own, intelligence={"misp": [feed]})


@pytest.fixture(params=["server", "feed"])
def home(request: pytest.FixtureRequest, server: MispServer, tmp_path: Path) -> Settings:
    return settings_of(tmp_path, server, form=request.param)


def test_types_become_kinds_and_what_is_no_indicator_stays_out(
    server: MispServer, home: Settings
) -> None:
    event = server.publish(
        ("ip-dst", "192.0.2.1", SOUGHT | {"comment": "C2"}),
        ("ip-src|port", "198.51.100.7|4444", SOUGHT),
        ("ip-dst", "2001:db8::/48", SOUGHT),
        ("domain|ip", "Evil.example|192.0.2.2", SOUGHT),
        ("hostname", "a.evil.example", SOUGHT),
        ("url", "hxxp://bad.example/x", SOUGHT),
        ("email-src", "Ann@Evil.example", SOUGHT),
        ("sha256", SHA256, SOUGHT),
        ("filename|md5", f"a.exe|{MD5}", SOUGHT),
        ("x509-fingerprint-sha1", SHA1, SOUGHT),
        ("domain", "benign.example", NOT_SOUGHT),
        ("domain", "gone.example", SOUGHT | {"deleted": True}),
    )
    assert run(home, "fetch") == 0
    entries = listed(home)
    assert entries.keys() == {
        "192.0.2.1", "198.51.100.7", "2001:db8::/48", "evil.example", "192.0.2.2",
        "a.evil.example", "bad.example/x", "ann@evil.example", SHA256, MD5, SHA1,
    }  # fmt: skip
    first = entries["192.0.2.1"]
    assert first["label"] == "C2"
    assert first["source"] == f"partner:{event.uuid}/{event.attributes[0].uuid}"
    assert entries["evil.example"]["label"] == "A campaign"


def test_a_later_fetch_adds_what_was_published_and_takes_away_what_is_none_any_more(
    server: MispServer, home: Settings
) -> None:
    event = server.publish(
        ("domain", "stays.example", SOUGHT),
        ("domain", "deleted.example", SOUGHT),
        ("domain", "harmless.example", SOUGHT),
    )
    server.now += timedelta(days=1)
    assert run(home, "fetch") == 0
    assert len(listed(home)) == 3
    # Another day: two are withdrawn, and an old attribute is published at last.
    server.now += timedelta(days=1)
    for attribute, change in zip(event.attributes[1:], ("deleted", "to_ids"), strict=True):
        setattr(attribute, change, change == "deleted")
        attribute.timestamp = server.now
    server.publish_again(event)
    server.publish(("domain", "late.example", SOUGHT | {"timestamp": STARTED}))
    assert run(home, "fetch") == 0
    assert listed(home).keys() == {"stays.example", "late.example"}


def test_scores_come_from_tags_and_threat_levels_and_ends_from_last_sight(
    server: MispServer, tmp_path: Path
) -> None:
    today = datetime.now(UTC).replace(microsecond=0)
    event = server.publish(
        ("domain", "sure.example", SOUGHT | {"last_seen": today}),
        ("domain", "unsure.example", SOUGHT),
    )
    event.attributes[0].add_tag("confidence:high")
    event.add_tag("tlp:green")
    scores = {"confidence:high": 90, "threat-level:high": 40}
    settings = settings_of(
        tmp_path, server, form="feed", scores=scores, min_score=50, expire_days=30
    )
    assert run(settings, "fetch") == 0
    entries = listed(settings)
    assert {value: row["score"] for value, row in entries.items()} == {"sure.example": 90}
    assert entries["sure.example"]["valid_until"] == today + timedelta(days=30)
    only = settings_of(tmp_path, server, form="feed", tags=["tlp:red"])
    assert run(only, "fetch") == 0
    assert listed(only) == {}


def test_the_best_decayed_score_of_the_server_counts(server: MispServer, tmp_path: Path) -> None:
    server.publish(("domain", "old.example", SOUGHT))
    plain = server.search

    def decayed(asked: dict[str, Any]) -> list[dict[str, Any]]:
        scores = [{"score": 12.4, "decayed": True}, {"score": 61.6, "decayed": False}]
        return [row | {"decay_score": scores} for row in plain(asked)]

    server.search = decayed  # type: ignore[method-assign]  # this server's alone
    settings = settings_of(tmp_path, server)
    assert run(settings, "fetch") == 0
    assert listed(settings)["old.example"]["score"] == 62


def test_the_server_is_asked_in_pages_as_its_own_library_asks(
    server: MispServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(misp, "PAGE", 2)
    server.publish(*(("domain", f"n{number}.example", SOUGHT) for number in range(5)))
    settings = settings_of(tmp_path, server, tags=[])
    assert run(settings, "fetch") == 0
    assert len(listed(settings)) == 5
    assert [asked["page"] for asked in server.asked] == [1, 2, 3]
    server.now += timedelta(days=1)
    assert run(settings, "fetch") == 0
    later = server.asked[-1]
    assert int(later["publish_timestamp"]) == int(STARTED.timestamp()) - 300
    ours = [server.asked[0], later]
    client = PyMISP(server.url, KEY)
    for asked in ours:
        client.search(
            controller="attributes",
            type_attribute=asked["type"],
            published=True,
            limit=2,
            page=asked["page"],
            to_ids=asked.get("to_ids"),
            publish_timestamp=asked.get("publish_timestamp"),
            deleted=asked.get("deleted"),
            include_event_tags=True,
            include_decay_score=True,
            enforce_warninglist=True,
        )
        theirs = server.asked[-1]
        assert {name: theirs.get(name) for name in asked} == asked


def test_of_a_feed_only_changed_events_are_read_and_those_that_left_it_go(
    server: MispServer, tmp_path: Path
) -> None:
    settings = settings_of(tmp_path, server, form="feed")
    first = server.publish(("domain", "first.example", SOUGHT))
    second = server.publish(("domain", "second.example", SOUGHT))
    assert run(settings, "fetch") == 0
    assert sorted(server.files) == sorted(
        ["manifest.json", f"{first.uuid}.json", f"{second.uuid}.json"]
    )
    server.files.clear()
    assert run(settings, "fetch") == 0
    assert server.files == ["manifest.json"]
    server.events.remove(first)
    assert run(settings, "fetch") == 0
    assert listed(settings).keys() == {"second.example"}


def test_what_cannot_be_used_is_counted_by_its_reason(
    server: MispServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.publish(
        ("domain", "one-label", SOUGHT), ("mutex", "x", SOUGHT), ("domain", "ok.example", SOUGHT)
    )
    settings = settings_of(tmp_path, server, form="feed")
    assert run(settings, "fetch", "--output", "json") == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["entries"], row["refused"]) == (1, 2)
    assert "type mutex: 1" in row["reasons"]


@pytest.mark.parametrize(
    "odd",
    [
        {"comment": "half a pair \ud83d"},
        {"last_seen": "2026-01-01T00:00:00"},
        {"decay_score": [{"score": None}]},
        {"decay_score": [{"score": float("inf")}]},
        {"timestamp": None},
    ],
)
def test_one_odd_attribute_keeps_no_other_out(
    server: MispServer, tmp_path: Path, odd: dict[str, Any]
) -> None:
    server.publish(("domain", "good.example", SOUGHT), ("domain", "odd.example", SOUGHT))
    plain = server.search

    def search(asked: dict[str, Any]) -> list[dict[str, Any]]:
        return [row | (odd if row["value"] == "odd.example" else {}) for row in plain(asked)]

    server.search = search  # type: ignore[method-assign]  # this server's alone
    settings = settings_of(tmp_path, server)
    assert run(settings, "fetch") == 0
    assert "good.example" in listed(settings)


def test_a_server_whose_date_has_no_zone_is_asked_by_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/Los_Angeles")
    time.tzset()
    try:
        since = misp._clock("Thu, 01 Jan 2026 00:10:00 -0000")
    finally:
        monkeypatch.undo()
        time.tzset()
    assert int(since) == int(datetime(2026, 1, 1, 0, 5, tzinfo=UTC).timestamp())


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"secret": "wrong"}, "restSearch: it answers 403: Authentication failed."),
        ({"form": "feed", "max_megabytes": 0.0001}, "more than 0.0001 MB"),
        ({"max_indicators": 1}, "more than 1 indicators"),
    ],
)
def test_a_server_that_fails_keeps_the_list_and_is_named(
    server: MispServer, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    more: dict[str, Any], reason: str,
) -> None:  # fmt: skip
    server.publish(("domain", "a.example", SOUGHT), ("domain", "b.example", SOUGHT))
    good = settings_of(tmp_path, server)
    assert run(good, "fetch") == 0
    bad = settings_of(tmp_path, server, **more)
    assert run(bad, "fetch") == 1
    assert reason in capsys.readouterr().err
    assert listed(bad).keys() == {"a.example", "b.example"}
    assert any(reason in finding.found for finding in feed_findings(bad))


def test_a_feed_whose_files_are_not_there_says_which(
    server: MispServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.file = lambda name: None  # type: ignore[method-assign]  # this server's alone
    assert run(settings_of(tmp_path, server, form="feed"), "fetch") == 1
    assert "manifest.json: it answers 404: Not found." in capsys.readouterr().err


@pytest.mark.parametrize(
    "answer",
    [
        b"[]", b"{}", b'{"response": []}', b'{"response": {"Attribute": [{}]}}', b"\xff", b"",
        b"[" * 100_000, b'{"response": {"Attribute": [{"uuid": 1, "Event": {}}]}}',
    ],
)  # fmt: skip
def test_what_is_no_misp_is_told_and_ends_nothing(
    server: MispServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], answer: bytes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr("tests.alerts.feeds.misp_server.json.dumps", lambda *_, **__: Raw(answer))
    assert run(settings_of(tmp_path, server), "fetch") == 1
    assert "no MISP" in capsys.readouterr().err


class Raw(str):
    """What the server sends in place of JSON."""

    def __new__(cls, data: bytes) -> Raw:
        made = super().__new__(cls)
        made.data = data
        return made

    def encode(self, *_: Any) -> bytes:
        return self.data

    data: bytes


def test_a_manifest_cannot_lead_elsewhere(
    server: MispServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.file = lambda name: {"../../etc/passwd": {"timestamp": 1}}  # type: ignore[method-assign]
    assert run(settings_of(tmp_path, server, form="feed"), "fetch") == 1
    assert "which is no UUID" in capsys.readouterr().err
    assert server.files == ["manifest.json"]
