"""A damaged body that was never published: it is named, its alert waits, the others go on, and a
person repairs it or lets it be left out."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from alerts.cli.explain import asking
from alerts.delivery.held_back import (
    LeftOut,
    held_findings,
    leave_out,
    left_out,
    left_out_file,
)
from alerts.delivery.publish_offset import publish_offset_file
from alerts.delivery.publisher import LOOK_SECONDS, Publisher
from alerts.lifecycle.alert_job import Outgoing
from alerts.tables import ALERT
from headgate.cli import main
from infra.delta.log_reader import newest_version
from infra.delta.parquet_writer import arrow_schema
from infra.errors import Usage
from infra.kafka.client import Broker, ensure_topics
from infra.maintenance.backup import backup
from infra.runtime.job_status import JobStatus, verdict, write_status
from infra.streaming.batch import Batch
from tests.alerts.delivery.test_delivery import messages
from tests.api.plain_desk import PlainDesk
from tests.headgate.as_code.delta_by_hand import append_rows

pytestmark = pytest.mark.full

TOPICS = ("alerts_topic", "progress_topic", "state_topic")


def desk_of(home: Path, kafka: dict[str, Any]) -> PlainDesk:
    return PlainDesk(home, devices=1, general={"kafka": kafka})


def alert_row(desk: PlainDesk) -> dict[str, Any]:
    """A row of gold.alert, about a device that no other is about."""
    device = 20 + newest_version(desk.settings.lake_root / ALERT.path)
    (row,) = desk._bucket.alerts(desk.seen(device, 70 + device))
    return row


def damaged(desk: PlainDesk, name: str, body: str | None) -> str:
    """A commit with a whole revision and, behind it, one whose body is damaged."""
    row = alert_row(desk)
    whole = json.dumps(row["body"] | {"alert_id": f"a-{name}"}, default=str)
    rows = [row | {"alert_id": f"a-{name}", "body": whole, "sequence": 9},
            row | {"alert_id": name, "body": body, "sequence": 9}]  # fmt: skip
    append_rows(desk.settings.lake_root, ALERT, rows)
    return f"{name}:1"


def more(desk: PlainDesk, name: str, revision: int, body: str | None = "") -> None:
    """A commit with a later revision of an alert; `body`: a damaged one."""
    row = alert_row(desk)
    own = {"alert_id": name, "revision": revision}
    whole = json.dumps(row["body"] | own, default=str)
    version = newest_version(desk.settings.lake_root / ALERT.path) + 1
    append_rows(
        desk.settings.lake_root, ALERT, [row | own | {"body": body or whole, "sequence": version}]
    )


def damaged_file(desk: PlainDesk, name: str) -> bytes:
    """A commit with a whole revision beside a damaged one; its file as it was before the damage."""
    root = desk.settings.lake_root / ALERT.path
    file = root / f"part-{newest_version(root) + 1}.parquet"
    row = alert_row(desk)
    bodies = {each: json.dumps(row["body"] | {"alert_id": each}, default=str)
              for each in (f"a-{name}", name)}  # fmt: skip
    rows = [row | {"alert_id": each, "body": body} for each, body in bodies.items()]
    append_rows(desk.settings.lake_root, ALERT, rows)
    whole = file.read_bytes()
    rows[1]["body"] = bodies[name][:-9] + "#########"
    schema = arrow_schema(ALERT)
    table = [{column: each.get(column) for column in schema.names} for each in rows]
    pq.write_table(pa.Table.from_pylist(table, schema=schema), file)
    return whole


def repair(desk: PlainDesk, whole: bytes) -> None:
    """Put the damaged file back from a backup."""
    root = desk.settings.lake_root / ALERT.path
    (root / "part-1.parquet").write_bytes(whole)


def published_desk(broker: Broker, home: Path) -> PlainDesk:
    """A desk with topics of its own, from which all goes out."""
    mark = home.name[-20:].replace("_", "-")
    topics = {name: f"{mark}.{name}" for name in TOPICS}
    desk = desk_of(home, {"bootstrap": broker.address} | topics)
    ensure_topics(desk.settings)
    Publisher(desk.settings).move(-1)
    return desk


def command(desk: PlainDesk, home: Path, *words: str) -> int:
    """`headgate alerts published`."""
    config = home / "headgate.toml"
    kafka = desk.settings.kafka.model_dump()
    chosen = {key: kafka[key] for key in ("bootstrap", *TOPICS)}
    lines = (f"{key} = {json.dumps(value)}" for key, value in chosen.items())
    config.write_text("\n".join(["[kafka]", *lines]))
    return main(["--config", str(config), "--home", str(home), "alerts", "published", *words])


def out(desk: PlainDesk) -> list[tuple[str, int]]:
    """What consumers have."""
    bodies = [
        json.loads(message.value() or b"{}")
        for message in messages(desk.settings, desk.settings.kafka.alerts_topic)
    ]
    return [(body["alert_id"], body["revision"]) for body in bodies]


def batch(home: Path) -> Batch:
    return Batch("alert", "q", 7, "d", home, False, datetime.now(UTC), "")


def keys(desk: PlainDesk) -> list[str]:
    topics = desk.settings.kafka
    return [m.key().decode() for m in messages(desk.settings, topics.alerts_topic) if m.key()]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ('{"rule": {"id"', "malformed"),
        ("{}", "its body is damaged"),
        ("", "malformed"),
        (None, "malformed"),
        ('{"title": "x"}', "it has no 'rule'"),
    ],
    ids=["torn", "empty-object", "empty", "null", "no-rule"],
)
def test_what_cannot_go_out_is_named_and_all_but_its_alert_go_on(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str], body: str | None, why: str
) -> None:
    desk = published_desk(broker, tmp_path)
    publisher = Publisher(desk.settings)
    name = damaged(desk, "torn", body)
    (later,) = desk.batch(desk.seen(8, 80))
    assert publisher.publish() == 3
    said = publisher.held_back()
    assert said.startswith("gold.alert, version 1: alert torn, revision 1, cannot be published")
    assert why in said
    assert "headgate alerts published --leave-out torn:1" in said
    assert capsys.readouterr().err.count(said) == 1
    assert {"a-torn", later} <= {*keys(desk)}
    # What follows of its alert waits as well, also for a successor and behind other alerts.
    more(desk, "torn", 2)
    assert publisher.publish() == 0
    publisher = Publisher(desk.settings)
    more(desk, "torn", 3)
    more(desk, "other", 1)
    assert publisher.publish() == 1
    assert [name for name, _ in out(desk) if name == "torn"] == []
    assert command(desk, tmp_path) == 0
    shown = capsys.readouterr()
    assert "alert torn, revisions 1 to 3: held back since" in shown.out
    assert said in shown.err
    assert command(desk, tmp_path, "--leave-out", name) == 0
    # Nobody takes the request of a job that runs: it would start one that fails later.
    resumed = tmp_path / "spool" / "resume" / "alert"
    assert resumed.exists()
    resumed.unlink()
    now = time.time()
    write_status(desk.settings, JobStatus("alert", "running", at=now, progressed_at=now))
    assert command(desk, tmp_path, "--leave-out", name) == 0
    assert not resumed.exists()
    assert publisher.publish() == 2
    assert "torn:1 is left out of the topics, as a person wanted" in capsys.readouterr().err
    assert [each for each in out(desk) if each[0] == "torn"] == [("torn", 2), ("torn", 3)]
    assert (publisher.publish(), publisher.held_back()) == (0, "")
    assert len(keys(desk)) == len({*out(desk)}) == 6


def test_what_is_repaired_goes_out_with_what_waits_for_it_once(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = published_desk(broker, tmp_path)
    whole = damaged_file(desk, "torn")
    more(desk, "torn", 2)
    publisher = Publisher(desk.settings)
    assert (publisher.publish(), publisher.publish()) == (2, 0)
    repair(desk, whole)
    monkeypatch.setattr("alerts.delivery.publisher.LOOK_SECONDS", 0.0)
    publisher._look_at = 0.0
    assert publisher.publish() == 2
    more(desk, "torn", 3)
    assert (publisher.publish(), Publisher(desk.settings).publish()) == (1, 0)
    assert [each for each in out(desk) if each[0] == "torn"] == [("torn", n) for n in (1, 2, 3)]


def put_back(desk: PlainDesk, made: Path) -> int:
    """`headgate backup restore BACKUP --damaged`, as what is held back says."""
    words = ["backup", "restore", str(made), "--damaged", "--table", "gold.alert"]
    return main(["--home", str(desk.settings.home), *words])


def test_a_damaged_file_comes_back_from_a_backup_while_the_job_runs(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    desk = published_desk(broker, tmp_path)
    whole = damaged_file(desk, "torn")
    file = Path(str(desk.settings.lake_root / ALERT.path)) / "part-1.parquet"
    torn = file.read_bytes()
    file.write_bytes(whole)
    made = backup(desk.settings, tmp_path / "backups")
    file.write_bytes(torn)
    publisher = Publisher(desk.settings)
    assert publisher.publish() == 2
    assert "headgate backup restore BACKUP --damaged --table gold.alert" in publisher.held_back()
    assert put_back(desk, made) == 0
    assert f"{file}: put back" in capsys.readouterr().err
    assert Publisher(desk.settings).publish() == 1
    # One that cannot be read at all holds up what follows it, and no batch.
    more(desk, "next", 1)
    file = file.with_name("part-2.parquet")
    whole = file.read_bytes()
    made = backup(desk.settings, tmp_path / "later")
    file.write_bytes(whole[: len(whole) // 2])
    outgoing, run = Outgoing(desk.settings), batch(tmp_path)
    outgoing.publish(run)
    assert f"gold.alert, version 2: {file} cannot be read" in run.held_back
    assert "headgate backup restore BACKUP --damaged" in run.held_back
    assert put_back(desk, made) == 0
    outgoing.publish(again := batch(tmp_path))
    assert again.held_back == ""
    sent = [name for name, _ in out(desk)]
    assert len(sent) == 4
    assert {"a-torn", "torn", "next"} <= {*sent}


def test_a_second_damaged_one_of_the_alert_holds_back_what_follows_it(
    broker: Broker, tmp_path: Path
) -> None:
    desk = published_desk(broker, tmp_path)
    publisher = Publisher(desk.settings)
    damaged(desk, "torn", "{")
    more(desk, "torn", 2)
    more(desk, "torn", 3, body="{")
    more(desk, "torn", 4)
    assert publisher.publish() == 2
    assert command(desk, tmp_path, "--leave-out", "torn:1") == 0
    assert publisher.publish() == 1
    assert "version 3: alert torn, revision 3, cannot be published" in publisher.held_back()
    assert command(desk, tmp_path, "--leave-out", "torn:3") == 0
    assert publisher.publish() == 1
    assert [each for each in out(desk) if each[0] == "torn"] == [("torn", 2), ("torn", 4)]


def test_a_place_that_a_person_moves_keeps_what_is_held_back_up_to_it(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    desk = published_desk(broker, tmp_path)
    damaged(desk, "torn", "{")  # version 1
    more(desk, "torn", 2)
    more(desk, "torn", 3)
    damaged(desk, "late", "{")  # version 4
    assert Publisher(desk.settings).publish() == 3
    assert command(desk, tmp_path, "--up-to", "2") == 0
    assert "alert torn, revision 1, cannot be published" in capsys.readouterr().err
    held = Publisher(desk.settings).places()[0].held
    assert {name: (hold.first, hold.last) for name, hold in held.items()} == {"torn": (1, 2)}
    # What lies behind it is sent again, as was asked; what is held back waits on.
    publisher = Publisher(desk.settings)
    assert publisher.publish() == 1
    assert command(desk, tmp_path, "--leave-out", "torn:1") == 0
    assert publisher.publish() == 2
    assert [each for each in out(desk) if each[0] == "torn"] == [("torn", 2), ("torn", 3)]


def test_a_damaged_place_file_and_what_is_held_back_are_told_by_status(
    broker: Broker, tmp_path: Path
) -> None:
    desk = published_desk(broker, tmp_path)
    assert [*held_findings(desk.settings)] == []
    damaged(desk, "torn", "{")
    Publisher(desk.settings).publish()
    (finding,) = held_findings(desk.settings)
    assert finding.found == "1 held back behind damaged revisions"
    assert "--leave-out torn:1" in (finding.remedy or "")
    publish_offset_file(desk.settings).write_text("{")
    (finding,) = held_findings(desk.settings)
    assert finding.found == "their place cannot be read"


def test_job_alert_misses_its_target_while_something_is_held_back(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    desk = published_desk(broker, tmp_path)
    damaged(desk, "torn", "{")
    outgoing, run = Outgoing(desk.settings), batch(tmp_path)
    outgoing.publish(run)
    assert "alert torn, revision 1, cannot be published" in run.held_back
    now = time.time()
    status = JobStatus("alert", "running", at=now, progressed_at=now, held_back=run.held_back)
    status.held_since = now - 3600
    missed = verdict("alert", status, desk.settings.targets.of("alert"), now).missed
    assert run.held_back in (missed or "")
    assert capsys.readouterr().err.count("cannot be published") == 2  # when it came; as the status
    outgoing.publish(again := batch(tmp_path))
    assert again.held_back == run.held_back
    # Also where nothing comes a batch comes to look, for as long as something is held back.
    assert run.due_after == again.due_after == (LOOK_SECONDS,)
    with asking(desk.settings) as ask:
        leave_out(desk.settings, ask, ["torn:1"])
    outgoing.publish(after := batch(tmp_path))
    assert (after.held_back, after.due_after) == ("", ())
    assert "cannot be published" not in capsys.readouterr().err, "not with each batch"


def test_only_what_is_damaged_is_left_out(tmp_path: Path) -> None:
    desk = desk_of(tmp_path, {})
    (whole,) = desk.batch(desk.seen(5, 50))
    name = damaged(desk, "torn", "{")
    with asking(desk.settings) as ask:
        for wrong, said in (
            (f"{whole}:1", "its body is whole and goes out by itself"),
            ("torn:2", "has no such ALERT_ID:REVISION"),
            ("torn", "has no such"),
            ("' OR 1=1 --", "has no such"),
        ):
            with pytest.raises(Usage, match=said):
                leave_out(desk.settings, ask, [name, wrong])
            assert left_out(desk.settings) == frozenset()
        leave_out(desk.settings, ask, [name])
    assert left_out(desk.settings) == {name}
    assert left_out_file(desk.settings).read() == LeftOut([name])
