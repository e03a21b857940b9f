"""A lake from a backup beside a broker that has heard more, and a lake whose broker was lost.

          backup
lake      1  2 │ 3  4              restored: 1  2  3' 4' 5'
broker    1  2 │ 3  4              what it had of 3 and 4 does not go out, the rest does
new one                            goes on behind 2: the file beside the checkpoint says so, and
                                   gets 3 and 4 once more where the lake comes from a backup
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from alerts.delivery import publish_offset
from alerts.delivery.publisher import Publisher
from alerts.delivery.publisher import published as up_to
from alerts.lifecycle import republish_guard
from headgate.cli import main
from infra.config.settings import Settings, load
from infra.delta.log_reader import newest_version
from infra.errors import Fatal
from infra.kafka.client import Broker, ensure_topics
from infra.kafka.transactions import read_all
from tests.faults.outbox import Outbox, begun
from tests.full import rest_full

Told = list[tuple[str, int]]


def beside(broker: Broker, home: Path, name: str) -> Settings:
    """The platform of a home beside a broker of a name: topics of its own, empty at first."""
    own = {kind: f"{name}.{kind}" for kind in ("alerts_topic", "progress_topic", "state_topic")}
    settings = load(home=home, kafka={"bootstrap": broker.address, **own})
    ensure_topics(settings)
    return settings


@pytest.fixture
def settings(broker: Broker, tmp_path: Path) -> Settings:
    return beside(broker, tmp_path, tmp_path.name[:40])


@pytest.fixture
def outbox(settings: Settings) -> Outbox:
    return begun(settings)


def told(settings: Settings) -> Told:
    """What consumers have, in order by alert."""
    Publisher(settings)._fence()  # a commit is answered before everybody sees it
    messages = read_all(settings, settings.kafka.alerts_topic)
    bodies = [json.loads(message.value() or b"{}") for message in messages]
    return sorted((body["alert_id"], body["revision"]) for body in bodies)


def published(settings: Settings, outbox: Outbox, alerts: Iterable[tuple[str, int]]) -> None:
    """A batch for each revision, as one driver makes them."""
    publisher = Publisher(settings)
    publisher.begin()
    for alert, revision in alerts:
        outbox.append((alert, revision, False))
        publisher.publish()


def restored(
    settings: Settings,
    outbox: Outbox,
    backed_up: Sequence[tuple[str, int]],
    since: Iterable[tuple[str, int]],
) -> None:
    """A lake from a backup, with its place; what came `since` consumers had as well."""
    published(settings, outbox, backed_up)
    kept = publish_offset.publish_offset_file(settings).read_text()
    published(settings, outbox, since)
    outbox.back(len(backed_up))
    publish_offset.publish_offset_file(settings).write_text(kept)


@pytest.mark.full
@pytest.mark.parametrize(
    "kept", rest_full(1, ["in the backup", "by no release yet", "newer than the lake"])
)
def test_what_consumers_had_does_not_come_again_and_what_they_had_not_comes(
    settings: Settings, outbox: Outbox, kept: str, capsys: pytest.CaptureFixture[str]
) -> None:
    published(settings, outbox, [("a", 1), ("b", 1)])
    file = publish_offset.publish_offset_file(settings)
    backed_up = file.read_text()
    published(settings, outbox, [("b", 2), ("c", 1), ("c", 2)])
    outbox.back(2)
    if kept == "in the backup":
        file.write_text(backed_up)
    elif kept == "by no release yet":
        file.unlink()
    # Batches fall otherwise than before, and new alerts come: in versions that went out already.
    drivers: list[Told] = [
        [("n", 1), ("b", 2), ("c", 1)],
        [("b", 3), ("c", 2)],
        [("c", 3), ("a", 2)],
    ]
    for batches in drivers:
        published(settings, outbox, batches)
        republish_guard.guard_file(settings).unlink()  # is made anew by the next
    wanted = [("a", 1), ("a", 2), ("b", 1), ("b", 2), ("b", 3), *(("c", n) for n in (1, 2, 3))]
    assert told(settings) == [*wanted, ("n", 1)]
    assert capsys.readouterr().err.count("an older lake was restored") == 1


@pytest.mark.full
def test_a_restore_is_noticed_also_when_its_first_batch_has_the_number_that_went_out(
    settings: Settings, outbox: Outbox
) -> None:
    restored(settings, outbox, [("a", 1)], [("b", 1)])
    outbox.append(("n", 1, False))
    outbox.append(("b", 1, False), ("b", 2, False))
    assert Publisher(settings).publish() == 2
    assert told(settings) == [("a", 1), ("b", 1), ("b", 2), ("n", 1)]


@pytest.mark.full
def test_a_place_that_a_person_sets_first_does_not_hide_the_restore(
    settings: Settings, outbox: Outbox
) -> None:
    restored(settings, outbox, [("a", 1), ("b", 1)], [("b", 2), ("c", 1)])
    republish_guard.note_published(settings, [], [])  # by a restore before this one
    Publisher(settings).move(2)  # headgate alerts published --now
    published(settings, outbox, [("b", 2), ("c", 1), ("c", 2)])
    assert told(settings) == [("a", 1), ("b", 1), ("b", 2), ("c", 1), ("c", 2)]


@pytest.mark.full
def test_what_was_heard_already_waits_no_more(settings: Settings, outbox: Outbox) -> None:
    restored(settings, outbox, [("a", 1)], [("a", 2), ("b", 1)])
    published(settings, outbox, [("b", 1), ("a", 2)])
    assert told(settings) == [("a", 1), ("a", 2), ("b", 1)]
    assert up_to(settings) == newest_version(outbox.folder) == 3


@pytest.mark.full
def test_only_alerts_of_which_more_was_heard_are_remembered(
    settings: Settings, outbox: Outbox
) -> None:
    restored(
        settings, outbox, [(f"old-{number}", 1) for number in range(20)], [("old-3", 2), ("new", 1)]
    )
    outbox.append(("old-7", 2, False))
    assert Publisher(settings).publish() == 1
    remembered = republish_guard.PublishedRevision(republish_guard.guard_file(settings))
    assert remembered.has("old-3", 2)
    assert not remembered.has("old-3", 3)
    assert remembered.has("new", 1)
    assert remembered.count == 3  # old-7 was under way


@pytest.mark.full
def test_without_a_restore_nothing_is_compared(settings: Settings, outbox: Outbox) -> None:
    published(settings, outbox, [("a", 1), ("a", 2)])
    published(settings, outbox, [("a", 3)])
    assert not republish_guard.guard_file(settings).exists()


@pytest.mark.full
def test_a_new_broker_gets_what_the_lost_one_never_had(
    settings: Settings, outbox: Outbox, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    published(settings, outbox, [("a", 1), ("b", 1)])
    outbox.append(("c", 1, False))  # and the broker is gone
    new = beside(broker, settings.home, f"{settings.kafka.alerts_topic[:40]}.new")
    assert Publisher(new).publish() == 1
    assert capsys.readouterr().err.count("alerts go on behind it") == 1
    file = publish_offset.publish_offset_file(new).read_text()
    publish_offset.publish_offset_file(
        new
    ).unlink()  # from here on the new one has the place as well
    outbox.append(("a", 2, False))
    assert Publisher(new).publish() == 1
    assert publish_offset.publish_offset_file(new).read_text() != file
    assert told(new) == [("a", 2), ("c", 1)]


@pytest.mark.full
def test_a_new_broker_beside_a_lake_from_a_backup_gets_again_what_went_out_since(
    settings: Settings, outbox: Outbox, broker: Broker
) -> None:
    restored(settings, outbox, [("a", 1), ("b", 1)], [("b", 2), ("c", 1)])
    new = beside(broker, settings.home, f"{settings.kafka.alerts_topic[:40]}.new")
    published(new, outbox, [("b", 2), ("c", 1), ("c", 2)])
    assert told(new) == [("b", 2), ("c", 1), ("c", 2)]


@pytest.mark.full
def test_of_a_new_table_all_goes_out_though_no_driver_lived_to_publish_it(
    settings: Settings, outbox: Outbox, capsys: pytest.CaptureFixture[str]
) -> None:
    outbox.append(("a", 1, False))
    Publisher(settings).begin()
    assert Publisher(settings).publish() == 1
    assert "go on" not in capsys.readouterr().err


@pytest.mark.full
@pytest.mark.parametrize("option", ["--now", "--up-to 1", "--up-to -1"])
def test_a_place_that_nobody_knows_is_asked_of_a_person(
    settings: Settings, outbox: Outbox, broker: Broker, option: str
) -> None:
    published(settings, outbox, [("a", 1), ("b", 1)])
    new = beside(broker, settings.home, f"{settings.kafka.alerts_topic[:40]}.new")
    publish_offset.publish_offset_file(new).unlink()
    for _ in range(2):
        with pytest.raises(Fatal, match=r"neither .* says .*'headgate alerts published --now'"):
            Publisher(new).publish()
    config = settings.home / "headgate.toml"
    kafka = {name: getattr(new.kafka, name) for name in new.kafka.model_fields_set}
    lines = (f"{name} = {json.dumps(value)}" for name, value in kafka.items())
    config.write_text("\n".join(["[kafka]", *lines]))
    command = ["--config", str(config), "--home", str(new.home), "alerts", "published"]
    assert main([*command, "--up-to", "3"]) == 2
    assert main([*command, *option.split()]) == 0
    assert (new.home / "spool" / "resume" / "alert").exists()
    assert len(list((new.home / "spool" / "audit").glob("alerts.published-*.json"))) == 1
    outbox.append(("c", 1, False))
    Publisher(new).publish()
    again = {"--now": [], "1": [("b", 1)], "-1": [("a", 1), ("b", 1)]}[option.split()[-1]]
    assert told(new) == [*again, ("c", 1)]


def test_the_place_is_shown(
    settings: Settings, outbox: Outbox, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    published(settings, outbox, [("a", 1)])
    outbox.nothing()
    monkeypatch.setenv("HEADGATE_KAFKA__BOOTSTRAP", settings.kafka.bootstrap)
    monkeypatch.setenv("HEADGATE_KAFKA__PROGRESS_TOPIC", settings.kafka.progress_topic)
    assert main(["--home", str(settings.home), "alerts", "published"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in lines[-3:]] == ["2", "1", "1"]


@pytest.mark.full
def test_a_log_that_was_shortened_behind_versions_that_told_nothing_is_no_gap(
    settings: Settings, outbox: Outbox
) -> None:
    """The broker learns of those that told something; the file of all."""
    published(settings, outbox, [("a", 1)])
    for _ in range(3):
        outbox.nothing()
    Publisher(settings).publish()
    for version in range(4):
        (outbox.folder / "_delta_log" / f"{version:020d}.json").unlink()
    outbox.append(("a", 2, False))
    assert Publisher(settings).publish() == 1
    assert told(settings) == [("a", 1), ("a", 2)]


@pytest.mark.full
def test_a_log_that_lost_what_was_never_published_says_how_to_go_on(
    settings: Settings, outbox: Outbox
) -> None:
    published(settings, outbox, [("a", 1)])
    for number in range(3):
        outbox.append((f"lost-{number}", 1, False))
    for version in range(4):
        (outbox.folder / "_delta_log" / f"{version:020d}.json").unlink()
    with pytest.raises(Fatal, match=r"begins at 4: .*'headgate alerts published --up-to 3'"):
        Publisher(settings).publish()
    Publisher(settings).move(3)
    assert Publisher(settings).publish() == 1
    assert told(settings) == [("a", 1), ("lost-2", 1)]
