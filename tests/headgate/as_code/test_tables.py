"""What the tables of the lake have to say: suppressions that job alert took, events to preview."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from alerts.delivery.action_request import request_action, waiting_requests
from alerts.lifecycle.suppression import SUPPRESS, UNSUPPRESS
from alerts.rulebook.rule_tests import complete
from alerts.tables import ALERT_ACTION
from headgate.as_code.apply import begin_apply
from headgate.as_code.export import export_folder
from headgate.as_code.kinds.suppressions import active_suppressions
from headgate.as_code.plan import planned_folder
from headgate.as_code.rows import preview_rows
from infra.config.settings import Settings, load
from ingest.tables import EVENT
from tests.headgate.as_code.delta_by_hand import append_rows
from tests.headgate.as_code.desk import made_home

NOW = datetime.now(UTC).replace(microsecond=0)


def suppressed(name: str, days: int, **more: Any) -> dict[str, Any]:
    return {
        "action_id": f"a-{name}", "alert_id": name, "rule_id": "*", "action": SUPPRESS,
        "value": "ann", "comment": "pentest", "who": "ann", "at": NOW - timedelta(days=1),
        "entity": f"host-{name}", "fields": None, "expires_at": NOW + timedelta(days=days), **more,
    }  # fmt: skip


def ended(name: str) -> dict[str, Any]:
    return suppressed(name, 0, action_id=f"u-{name}", action=UNSUPPRESS, expires_at=None)


@pytest.fixture
def home(tmp_path: Path) -> Settings:
    return load(home=tmp_path / "home")


def test_suppressions_that_are_over_or_asked_to_end_are_not_in_force(home: Settings) -> None:
    rows = [suppressed("long", 9), suppressed("over", -1), suppressed("gone", 9), ended("gone")]
    append_rows(home.lake_side, ALERT_ACTION, [*rows, suppressed("asked", 9)])
    request_action(home, UNSUPPRESS, "asked", "*")
    (values,) = active_suppressions(home).values()
    assert values == {
        "rule": "*", "entity": "host-long", "fields": {}, "owner": "ann", "reason": "pentest",
        "expires_at": (NOW + timedelta(days=9)).isoformat(),
    }  # fmt: skip


@pytest.mark.full
def test_a_changed_suppression_begins_anew_before_the_one_in_force_ends(
    home: Settings, tmp_path: Path
) -> None:
    append_rows(home.lake_side, ALERT_ACTION, [suppressed("long", 9)])
    folder = tmp_path / "repository"
    export_folder(home, folder)
    file = folder / "suppressions.yml"
    file.write_text(file.read_text().replace("reason: pentest", "reason: second week"))
    with planned_folder(home, folder, False) as (plan, reading, _):
        begin_apply(home, reading, plan.changes, folder, lambda _: None)
    begun, over = waiting_requests(home)
    assert (begun["action"], begun["comment"]) == (SUPPRESS, "second week")
    assert (over["action"], over["alert_id"]) == (UNSUPPRESS, "long")
    with planned_folder(home, folder, True) as (plan, _, _):
        assert plan.exit_code == 0


def test_a_changed_rule_is_counted_over_history_before_and_after(tmp_path: Path) -> None:
    settings = made_home(tmp_path)
    folder = tmp_path / "repository"
    export_folder(settings, folder)
    rule = folder / "rules" / "own" / "team" / "root.yml"
    rule.write_text(rule.read_text().replace("User: root", "User: [root, toor]"))
    users = ["root", "root", "toor", "ann"]
    classes = (3002,)
    events = [
        complete({"event_uid": f"e{n}", "user.name": user, "status_id": 1,
                  "service.name": "sshd"}, classes)
        | {"source": "sshd", "mode": "live", "time": NOW - timedelta(hours=1)}
        for n, user in enumerate(users)
    ]  # fmt: skip
    append_rows(settings.lake_side, EVENT, events)
    with planned_folder(settings, folder, False) as (plan, _, rules):
        assert plan.problems == ()
        (row,) = preview_rows(settings, plan, rules, NOW - timedelta(days=1))
    assert (row["action"], row["name"]) == ("preview", "own_root_login")
    # A rule that is off counts all the same: switching it on is what one wants to know about.
    assert (row["before"], row["after"]) == (2, 3)
