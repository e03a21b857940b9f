"""How far preliminary alerts are told, and which of them wait for their answer.

The broker has the place in the transaction that tells them, so that one counts. The file is its
copy: it says where to go on when the broker was lost, and `headgate status` reads it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from alerts.delivery.publish_offset import PublishOffset
from alerts.preliminary.message import ANSWER_COLUMNS
from alerts.tables import PRELIMINARY_ANSWER
from infra.config.settings import Settings
from infra.delta.appended_rows import added_rows
from infra.delta.log_reader import commit, versions
from infra.storage.state_file import StateFile


class Waiting(msgspec.Struct, frozen=True, array_like=True):
    """A preliminary alert without an answer. `answer_by`: microseconds since 1970.

    `record`: topic, partition and offset of what it was told of, as long as job `ingest` is not
    known to have taken it. `about`: rule and entity, as one hash; empty: not noted.
    """

    alert_id: str
    rule_id: str
    answer_by: int
    record: tuple[str, int, int] | None = None
    about: str = ""


class Place(msgspec.Struct, frozen=True):
    """Up to where gold.finding and gold.preliminary_answer are told; by finding, what waits."""

    # Without a default: a file that has neither is none of this form, and not a place at zero.
    findings: PublishOffset
    answers: PublishOffset
    waiting: dict[str, Waiting] = {}


def place_file(settings: Settings) -> StateFile[Place]:
    """The file that has the place."""
    return StateFile(
        _path(settings),
        Place,
        "remove it: preliminary alerts go on behind what the broker says, else with new findings",
        newer_keys=True,
    )


def _path(settings: Settings) -> Path:
    return settings.checkpoint_root / "ingest" / "preliminary.json"


def read_place(data: bytes) -> Place:
    """A place as a message has it."""
    return msgspec.json.decode(data, type=Place)


def answers_since(settings: Settings, version: int) -> list[tuple[int, list[dict[str, Any]]]]:
    """The answers of each commit behind a version of gold.preliminary_answer, with its version.

    Of a commit whose files were cleaned away, none.
    """
    table = settings.lake_root / PRELIMINARY_ANSWER.path
    commits = []
    for number in versions(table, version + 1):
        try:
            rows = added_rows(table, commit(table, number), ANSWER_COLUMNS)
        except FileNotFoundError:
            rows = []
        commits.append((number, rows))
    return commits


def overdue_answers(settings: Settings, now: int) -> dict[str, Waiting]:
    """Preliminary alerts whose answer is late, by finding; `now`: microseconds.

    Also answers that job `ingest` has yet to hand on count: it may be the one that stands still.
    Raises `Fatal` for a damaged file.
    """
    place = place_file(settings).read()
    if place is None:
        return {}
    late = {key: each for key, each in place.waiting.items() if each.answer_by < now}
    if late:
        for _, rows in answers_since(settings, place.answers.version):
            for row in rows:
                late.pop(row["finding_id"], None)
    return late
