"""A TAXII collection becomes an indicator list, page by page and run by run."""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import stix2
from prometheus_client import CollectorRegistry

from alerts.cli import indicators
from alerts.compiler.indicator_lists import ListStore
from alerts.feeds.feed_state import feed_findings, state_file
from alerts.rulepack.indicator_file_format import open_indicators
from alerts.rulepack.locations import FOLDER, store_folder
from api.observability.feed_gauges import FeedGauges
from infra.config.settings import Settings, load
from infra.errors import Usage
from infra.kafka.client import free_port
from tests.alerts.feeds.taxii_server import PASSWORD, USER, TaxiiServer

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
HASH = "a" * 64
RULE = """
title: Asked for a name of the partner's list
name: partner
id: 5f2bd6f0-3b6b-4a5f-9a56-1d3a0c1f5a11
level: high
headgate: {type: indicator, list: partner}
"""


@pytest.fixture
def home(server: TaxiiServer, tmp_path: Path) -> Settings:
    return settings_of(tmp_path, server)


def settings_of(home: Path, server: TaxiiServer, **more: Any) -> Settings:
    feed = {
        "name": "partner",
        "url": server.root,
        "collection": server.collection,
        "user": USER,
        "secret": PASSWORD,
    }
    rules = home / "rules"
    rules.mkdir(exist_ok=True)
    (rules / "rule.yml").write_text(RULE)
    # Without the bundled rules, which take seconds to compile.
    own = {"bundled": False, "rules": [str(rules)]}
    return load(home=home / "home", alerts=own, intelligence={"taxii": [feed | more]})


def indicator(pattern: str, **more: Any) -> dict[str, Any]:
    made = stix2.Indicator(pattern=pattern, pattern_type="stix", valid_from=BEGAN, **more)
    result: dict[str, Any] = json.loads(made.serialize())
    return result


def run(settings: Settings, *words: str) -> int:
    parser = argparse.ArgumentParser()
    indicators.build(parser.add_subparsers())
    args = parser.parse_args(["indicators", *words])
    code: int = args.run(args, settings)
    return code


def listed(settings: Settings, name: str = "partner") -> dict[str, dict[str, Any]]:
    listing = ListStore(store_folder(settings)).lists()[name]
    file = store_folder(settings) / FOLDER / f"{listing.hash}.arrow"
    return {row["value"]: row for row in open_indicators(file).table.to_pylist()}


def test_a_collection_becomes_a_list_and_what_cannot_be_used_is_counted(
    server: TaxiiServer, home: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    until = BEGAN + timedelta(days=4000)
    server.add(
        indicator("[domain-name:value = 'evil.example']", name="C2", confidence=80),
        indicator("[ipv4-addr:value = '192.0.2.1' OR ipv4-addr:value = '192.0.2.2']"),
        indicator("[url:value = 'http://bad.example/x']", valid_until=until),
        indicator(f"[file:hashes.'SHA-256' = '{HASH}']"),
        indicator("[email-addr:value = 'Ann@Evil.example']"),
        indicator("[domain-name:value = 'a.example' AND ipv4-addr:value = '192.0.2.9']"),
        indicator("[process:name = 'x']"),
        json.loads(stix2.Identity(name="someone").serialize()),
    )
    server.add(indicator("[domain-name:value = 'one-label']"))
    assert run(home, "fetch", "--output", "json") == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["indicators"], row["entries"], row["refused"]) == (8, 6, 3)
    assert "a value of kind domain that is none: 1" in row["reasons"]
    entries = listed(home)
    assert entries.keys() == {
        "evil.example", "192.0.2.1", "192.0.2.2", "bad.example/x", HASH, "ann@evil.example",
    }  # fmt: skip
    evil = entries["evil.example"]
    assert (evil["label"], evil["score"]) == ("C2", 80)
    assert evil["source"].startswith("partner:indicator--")
    assert entries["bad.example/x"]["valid_until"] == until
    assert run(home, "list") == 0


def test_a_later_fetch_asks_for_what_is_new_and_takes_away_what_was_revoked(
    server: TaxiiServer, home: Settings
) -> None:
    first = indicator("[domain-name:value = 'first.example']")
    server.add(first, *(indicator(f"[domain-name:value = 'n{n}.example']") for n in range(5)))
    assert run(home, "fetch") == 0
    assert len(listed(home)) == 6
    before = ListStore(store_folder(home)).lists()["partner"].hash
    assert run(home, "fetch") == 0
    assert ListStore(store_folder(home)).lists()["partner"].hash == before
    later = stix2.parse(first).new_version(revoked=True)
    server.add(json.loads(later.serialize()), indicator("[domain-name:value = 'new.example']"))
    assert run(home, "fetch") == 0
    assert "first.example" not in listed(home)
    assert "new.example" in listed(home)
    # What the server forgot without revoking it goes when all is read anew; nothing else does.
    assert run(home, "fetch", "partner", "--anew") == 0
    assert len(listed(home)) == 6


def test_scores_and_ends_follow_the_settings(server: TaxiiServer, tmp_path: Path) -> None:
    server.add(
        indicator("[domain-name:value = 'sure.example']", confidence=90),
        indicator("[domain-name:value = 'named.example']", indicator_types=["malicious-activity"]),
        indicator("[domain-name:value = 'plain.example']"),
    )
    scores = {"malicious-activity": 70}
    settings = settings_of(tmp_path, server, scores=scores, min_score=60, expire_days=30)
    assert run(settings, "fetch") == 0
    entries = listed(settings)
    assert {value: row["score"] for value, row in entries.items()} == {
        "sure.example": 90,
        "named.example": 70,
    }
    left = entries["sure.example"]["valid_until"] - datetime.now(UTC)
    assert timedelta(days=29) < left <= timedelta(days=30)
    # Other settings make other entries of the same objects: the feed is read anew.
    settings = settings_of(tmp_path, server, default_score=65, min_score=60)
    assert run(settings, "fetch") == 0
    assert listed(settings)["plain.example"]["score"] == 65


def test_a_feed_that_fails_is_named_and_keeps_its_list(
    server: TaxiiServer, home: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.add(indicator("[domain-name:value = 'evil.example']"))
    assert run(home, "fetch") == 0
    wrong = settings_of(tmp_path, server, secret="wrong")
    assert run(wrong, "fetch") == 1
    assert "headgate: feed partner: it answers 401" in capsys.readouterr().err
    (finding,) = feed_findings(wrong)
    assert "fails since" in finding.found
    assert finding.remedy == "headgate indicators fetch partner"
    assert run(wrong, "feeds") == 1
    gone = settings_of(tmp_path, server, url=f"http://127.0.0.1:{free_port()}/trust/")
    assert run(gone, "fetch", "partner") == 1
    assert "ConnectionError" in capsys.readouterr().err
    assert "evil.example" in listed(home)
    gauges = {
        family.name: family.samples for family in FeedGauges(CollectorRegistry(), gone).collect()
    }
    assert [sample.value for sample in gauges["headgate_feed_up"]] == [0]
    assert [sample.value for sample in gauges["headgate_feed_entries"]] == [1]


def test_only_feeds_that_are_due_are_fetched(server: TaxiiServer, home: Settings) -> None:
    assert run(home, "fetch", "--due") == 0
    feed = home.intelligence.taxii[0]
    file = state_file(home, feed)
    state = file.read()
    assert state is not None
    assert run(home, "fetch", "--due") == 0
    assert file.read() == state
    assert state.is_due(feed, state.tried_at + 3600)
    state.not_before = state.tried_at + 5000
    assert not state.is_due(feed, state.tried_at + 3600)
    # A clock that was ahead must not put a feed off for years.
    state.not_before = state.tried_at + 500_000
    assert state.is_due(feed, state.tried_at + 3600)


def test_a_list_of_a_person_is_not_replaced_and_that_of_a_feed_not_loaded_over(
    server: TaxiiServer, home: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "own.txt"
    file.write_text("own.example\n")
    ListStore(store_folder(home)).load("partner", file)
    assert run(home, "fetch") == 1
    assert "from own.txt" in capsys.readouterr().err
    for words in (("load", "partner", str(file)), ("remove", "partner")):
        with pytest.raises(Usage, match="kept by feed partner"):
            run(home, *words)
    with pytest.raises(Usage, match="there are: partner"):
        run(home, "fetch", "other")
