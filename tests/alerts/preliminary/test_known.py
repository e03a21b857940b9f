"""Who holds an address and what is suppressed, as far as it is known before an alert is made."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from alerts.domain.entity import Holder
from alerts.preliminary import known_holders
from alerts.preliminary.known_holders import KnownHolders
from alerts.preliminary.known_suppressions import KnownSuppressions
from alerts.tables import ALERT_ACTION
from enrich.tables import DHCP_SEGMENT
from infra.config.settings import load
from infra.delta.appended_rows import AppendedRows
from infra.delta.log_reader import commit
from tests.faults.early_outbox import ByHand

NOW = datetime.now(UTC).replace(microsecond=0)
HOUR = timedelta(hours=1)


def segment(ip: str, mac: str | None, rev: int, **more: Any) -> dict[str, Any]:
    span = {"seg_start": NOW - HOUR, "seg_end": NOW + HOUR}
    lease = {"session_start": NOW - HOUR, "session_end": NOW + HOUR, "session_id": f"s{rev}"}
    known = {"known_at": NOW, "learned_at": NOW, "kind": "lease", "hostname": "h"}
    own = {"scope": "default", "ip": ip, "mac": mac, "rev": rev}
    return span | lease | known | own | more


def action(name: str, what: str, minutes: int, **more: Any) -> dict[str, Any]:
    at = {"at": NOW + timedelta(minutes=minutes), "expires_at": NOW + HOUR}
    own = {"action_id": f"{name}-{what}", "alert_id": name, "rule_id": "*", "action": what}
    return at | own | {"who": "ann"} | more


def test_the_newest_statement_about_an_address_says_who_holds_it(tmp_path: Path) -> None:
    settings = load(home=tmp_path)
    table = ByHand(settings, DHCP_SEGMENT)
    old = {"known_at": NOW - timedelta(days=400)}
    table.append("sessions", segment("10.0.0.1", "aa", 1), segment("10.0.0.1", "bb", 2))
    table.append("sessions", segment("10.0.0.2", "cc", 1), segment("10.0.0.3", "dd", 1, **old))
    table.append("sessions", segment("10.0.0.2", "ee", 9, kind="heartbeat"))
    holders = KnownHolders(settings)
    holders.refresh()
    assert (holders.holder("default", "10.0.0.1", NOW) or Holder()).mac == "bb"
    assert (holders.holder("default", "10.0.0.2", NOW) or Holder()).mac == "cc"
    assert holders.holder("default", "10.0.0.3", NOW) is None, "no lease lasts so long"
    assert holders.holder("other", "10.0.0.1", NOW) is None
    assert holders.holder("default", None, NOW) is None
    assert holders.holder("default", "10.0.0.1", NOW + HOUR) is None, "the lease has ended"
    # What is written from then on is read from the log; an older word changes nothing.
    table.append("sessions", segment("10.0.0.1", None, 3), segment("10.0.0.2", "xx", 0))
    holders.refresh()
    free = holders.holder("default", "10.0.0.1", NOW)
    assert free is not None
    assert (free.status, free.mac) == ("none", None)
    assert (holders.holder("default", "10.0.0.2", NOW) or Holder()).mac == "cc"


def test_of_too_many_addresses_those_heard_of_least_lately_are_forgotten(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(known_holders, "MOST", 2)
    holders = KnownHolders(load(home=tmp_path))
    holders.take([segment("10.0.0.1", "aa", 1), segment("10.0.0.2", "bb", 1)])
    holders.take([segment("10.0.0.1", "aa", 2), segment("10.0.0.3", "cc", 1)])
    known = [holders.holder("default", f"10.0.0.{n}", NOW) for n in (1, 2, 3)]
    assert [one and one.mac for one in known] == ["aa", None, "cc"]


def test_suppressions_begin_and_end_as_people_ask(tmp_path: Path) -> None:
    settings = load(home=tmp_path)
    table = ByHand(settings, ALERT_ACTION)
    table.append("outbox", action("a", "suppress", 0), action("b", "suppress", 0))
    table.append("outbox", action("x", "close", 1))
    known = KnownSuppressions(settings)
    assert [one.suppression_id for one in known.current()] == ["a", "b"]
    table.append("outbox", action("c", "suppress", 2, fields=[("user.name", "r*")]))
    table.append("outbox", action("a", "unsuppress", 3))
    b, c = known.current()
    assert (b.suppression_id, c.suppression_id, c.fields) == ("b", "c", {"user.name": "r*"})


def test_a_lake_without_these_tables_knows_none(tmp_path: Path) -> None:
    settings = load(home=tmp_path)
    assert KnownSuppressions(settings).current() == ()
    holders = KnownHolders(settings)
    holders.refresh()
    assert holders.holder("default", "10.0.0.1", NOW) is None


def test_a_lake_that_cannot_be_read_once_loses_neither_holders_nor_suppressions(
    tmp_path: Path, monkeypatch: Any
) -> None:
    settings = load(home=tmp_path)
    ByHand(settings, DHCP_SEGMENT).append("sessions", segment("10.0.0.1", "aa", 1))
    ByHand(settings, ALERT_ACTION).append("outbox", action("a", "suppress", 0))
    holders, known = KnownHolders(settings), KnownSuppressions(settings)

    def away(*_: Any, **__: Any) -> Any:
        raise OSError("away")

    with monkeypatch.context() as broken:
        broken.setattr(KnownHolders, "_before", away)
        broken.setattr(AppendedRows, "read", away)
        holders.refresh()
        with pytest.raises(OSError, match="away"):
            known.current()
    holders.refresh()
    assert (holders.holder("default", "10.0.0.1", NOW) or Holder()).mac == "aa"
    assert [one.suppression_id for one in known.current()] == ["a"]


def test_a_file_that_cannot_be_read_once_keeps_what_was_read_before_it(
    tmp_path: Path, monkeypatch: Any
) -> None:
    settings = load(home=tmp_path)
    table = ByHand(settings, ALERT_ACTION)
    tail = AppendedRows(settings.lake_root / ALERT_ACTION.path, ["alert_id"])
    table.append("outbox", action("a", "suppress", 0))
    table.append("outbox", action("b", "suppress", 0))

    def second_away(folder: Any, version: int) -> Any:
        if version == 2:
            raise OSError("away")
        return commit(folder, version)

    with monkeypatch.context() as broken:
        broken.setattr("infra.delta.appended_rows.commit", second_away)
        with pytest.raises(OSError, match="away"):
            tail.read()
    assert [one["alert_id"] for one in tail.read()] == ["a", "b"]
    assert tail.read() == []
