"""What a parser takes out of a record, a rule can still ask by the product's own name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from alerts.reach import windows_places
from alerts.reach.windows_places import Log, consumed, event_of_data, sample
from alerts.rulepack.derived_fields import fold, text_of
from alerts.rulepack.field_mapping import mapping
from alerts.rulepack.log_source import LogSource
from alerts.rulepack.predicate import at, present
from ingest.sources.windows.providers import BY_PROVIDER

UNKNOWN_ID = 65000
PLAIN = (3, 1)
"""Forms of a sample to try besides: an account in one piece, and a bare word."""
WINDOWS = {"system": "win_system", "application": "win_application"}
OTHER_WORDS = {
    *("FileHash", "Hash"),
    # Values without names, which are read for what stands inside of them.
    *("param1", "param2", "param3", "param4", "param7"),
}
"""Taken by a parser and kept in other words."""


def channels() -> Iterator[tuple[str, LogSource, Log]]:
    """Each log source of a Windows channel with what writes to it.

    Not Security, whose places are traced one by one (`test_one_place.py`).
    """
    for (category, product, service), source in mapping().logsources.items():
        if product != "windows" or category or not service or service == "security":
            continue
        where = source.where[0] if source.where else {}
        channel = where.get("metadata.log_name", where.get("metadata.log_provider", ("",)))[0]
        if service in WINDOWS:
            yield service, source, windows_places.LOGS[WINDOWS[service]]
        elif channel:
            provider = channel.partition("/")[0].lower()
            yield service, source, Log(channel, (provider,))


QUICK = {"lsa-server", "driver-framework", "dns-client", "smbserver-security"}
CHANNELS = [
    pytest.param(source, log, id=service, marks=[] if service in QUICK else pytest.mark.full)
    for service, source, log in channels()
]


def lost(source: LogSource, log: Log, provider: str, event_id: int) -> set[str]:
    """Names the parser takes whose value the log source's places do not have."""
    taken = consumed(log, provider, event_id, {})
    names = sorted(taken)
    missing = set()
    for number, name in enumerate(names):
        forms = dict.fromkeys((taken[name], *PLAIN))
        tries = (_kept(source, log, provider, event_id, name, sample(number, f)) for f in forms)
        if name not in OTHER_WORDS and not any(tries):
            missing.add(name)
    return missing


def _kept(source: LogSource, log: Log, provider: str, event_id: int, name: str, value: str) -> bool:
    event, _, left = event_of_data(log, provider, event_id, {name: value})
    return name in left or holds(source, event, name, value, str(event_id))


def holds(
    source: LogSource, event: Mapping[str, Any], name: str, value: str, code: str | None
) -> bool:
    places = source.places(name, frozenset({code}) if code else None)
    values = [
        fold(text_of(found)) for place in places for path in place.paths
        for found in present(at(event, path))
    ]  # fmt: skip
    return fold(value) in values


@pytest.mark.parametrize(("source", "log"), CHANNELS)
def test_a_rule_of_a_channel_can_ask_what_its_parser_took(source: LogSource, log: Log) -> None:
    missing = {
        (provider, event_id, name)
        for provider in log.providers
        for event_id in (*BY_PROVIDER.get(provider, {}), UNKNOWN_ID)
        for name in lost(source, log, provider, event_id)
    }
    assert missing == set()
