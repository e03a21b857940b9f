"""How each model in force fits the last week, as the newest look left it beside the models.

`headgate models retrain` looks each time it runs, so that `status` and `doctor` need no table.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import msgspec

from alerts.anomaly.drift import TRAIN_AGAIN, drift_of
from alerts.anomaly.store import ModelStore
from alerts.rulebook.rule_store import model_rules
from alerts.rulepack.locations import MODELS, store_folder
from infra.config.settings import Settings
from infra.errors import Fatal
from infra.runtime.machine_checks import Finding
from infra.storage.state_file import StateFile

LOOKS_BACK = timedelta(days=7)
"""Judged hours that are looked at: a whole week, as weekends differ."""


class DriftNote(msgspec.Struct, frozen=True):
    """What was seen of the model of one rule: `state` and `sentence` are those of `Drift`."""

    rule: str
    model: str
    looked_at: datetime
    state: str
    sentence: str


def drift_file(settings: Settings) -> StateFile[dict[str, DriftNote]]:
    """The file with the newest look, by the rule's id."""
    return StateFile(
        store_folder(settings) / MODELS / "drift.json",
        dict[str, DriftNote],
        "remove it: the next `headgate models retrain` looks anew",
    )


def note_drift(settings: Settings, now: datetime) -> None:
    """Look at the week before `now`, and keep what is seen; nothing where no rule has a model."""
    from infra.delta.duckdb_views import connect

    rules = [source.rule for source in model_rules(settings).sources.values() if source.rule.model]
    if not rules:
        return
    store = ModelStore(store_folder(settings))
    duck = connect(settings.lake_root, needs=("gold.device_hour",), only=())
    try:
        notes = {
            rule.id: DriftNote(rule.name or rule.id, rule.model, now, drift.state, drift.sentence)
            for rule in rules
            for drift in (drift_of(duck, store.get(rule.model), now - LOOKS_BACK, now),)
        }
    finally:
        duck.close()
    drift_file(settings).write(notes)


def drift_findings(settings: Settings) -> Iterator[Finding]:
    """One line a rule with a model, for `headgate doctor` and `headgate status`."""
    try:
        current = ModelStore(store_folder(settings)).current()
        notes = drift_file(settings).read() or {}
    except Fatal as error:
        yield Finding("model", "how it drifted cannot be read", str(error))
        return
    for rule_id, model in current.items():
        note = notes.get(rule_id)
        # What was seen of a model that is no longer in force says nothing of the one that is.
        if note is None or note.model != model:
            continue
        remedy = f"headgate models train {note.rule}" if note.state == TRAIN_AGAIN else None
        when = note.looked_at.astimezone(UTC)
        yield Finding(
            "model",
            f"{note.rule}: {note.state}, as of {when:%Y-%m-%dT%H:%MZ}: {note.sentence}",
            remedy,
        )
