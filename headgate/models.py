"""The anomaly models of a lake for notebooks: trained, judged on other days, put in force."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from alerts.rulebook.rule_store import model_rules, recompile
from alerts.rulepack.locations import store_folder
from headgate.result import QueryResult, result_of
from infra.config.settings import Settings
from infra.config.time_args import instant
from infra.errors import Usage

if TYPE_CHECKING:
    from alerts.anomaly.drift import Drift
    from alerts.compiler.model_rule_files import ModelSource
    from infra.streaming.lake import Lake

_COLUMNS = ["hour", "device", "name", "score", "told", "feature", "value", "usual_low",
            "usual_high", "what"]  # fmt: skip


@dataclass(frozen=True)
class TrainedModel:
    """A model that is kept and not yet in force.

    `devices`: those it knows; `too_new`: those with too little history. `hours`: of devices that
    it learned from; `told`: how many of these it would have told of.
    """

    rule: str
    hash: str
    since: datetime
    until: datetime
    devices: int
    too_new: int
    hours: int
    told: int


class ModelBook:
    """Rules of kind model, and what they were trained to."""

    def __init__(self, settings: Settings, lake: Callable[[], Lake]) -> None:
        self._settings = settings
        self._lake = lake

    def list(self) -> QueryResult:
        """The rules of kind model: id, name, title, threshold, and the model each runs with."""
        rules = [source.rule for source in model_rules(self._settings).sources.values()]
        return result_of(
            [
                {"id": rule.id, "name": rule.name, "title": rule.title,
                 "threshold": rule.threshold, "model": rule.model or None}
                for rule in rules
            ],
            ["id", "name", "title", "threshold", "model"],
        )  # fmt: skip

    def train(self, rule: str, since: datetime | str, until: datetime | str) -> TrainedModel:
        """Learn from events in [since, until), and keep the model; what is in force stays.

        `rule`: id or name. Raises `Usage` where no device has the history that the rule asks for.
        """
        from alerts.anomaly.store import ModelStore
        from alerts.anomaly.train import train

        source, (begin, end) = self._source(rule), _span(since, until)
        store = ModelStore(store_folder(self._settings))
        done = train(self._lake(), store, source.rule, begin, end)
        header = done.header
        return TrainedModel(
            source.rule.name or source.rule.id,
            done.hash,
            header.since,
            header.until,
            header.devices,
            header.unjudged,
            header.device_hours,
            done.alerting_hours,
        )

    def judge(
        self,
        model: TrainedModel,
        since: datetime | str,
        until: datetime | str,
        *,
        least_score: float | None = None,
    ) -> QueryResult:
        """The hours of [since, until) by their score, the highest first, each with its reason.

        `least_score`: hours below it are left out (none: below the rule's threshold). `told`:
        whether there would be a finding. Nothing is kept. Raises `Usage` for days from which the
        model learned: on them it looks better than it is.
        """
        from alerts.anomaly.finding import said
        from alerts.anomaly.job import judged_hours, whole_hours
        from alerts.anomaly.store import ModelStore

        # Whole hours only: a part of one looks quieter than the device was.
        begin, end = whole_hours(*_span(since, until))
        if begin < model.until and end > model.since:
            raise Usage(
                f"the model learned from {model.since.isoformat()} to {model.until.isoformat()}: "
                "judge other days"
            )
        rule = self._source(model.rule).rule
        judge = ModelStore(store_folder(self._settings)).get(model.hash)
        least = rule.threshold if least_score is None else least_score
        rows = [
            {
                "hour": datetime.fromtimestamp(int(row["hour"]), UTC),
                "device": row["last"]["s_mac"] or row["last"]["ip"] or row["last"]["host"],
                "name": row["last"]["s_hostname"],
                "score": judged.score,
                "told": judged.score >= rule.threshold,
                "feature": judged.feature,
                "value": float(judged.value),
                "usual_low": judged.low,
                "usual_high": judged.high,
                "what": said(judged, int(row["hour"])),
            }
            for row, judged in judged_hours(self._lake(), rule, judge, begin, end)
            if judged.score >= least
        ]
        rows.sort(key=lambda row: (-row["score"], row["hour"], row["device"]))
        return result_of(rows, _COLUMNS)

    def drift(self, rule: str, since: datetime | str, until: datetime | str) -> Drift:
        """Whether the hours of [since, until) that the model in force judged are like those it
        learned from: `state`, `sentence` and the figures. Raises `Usage` before it has one."""
        from alerts.anomaly.drift import drift_of
        from alerts.anomaly.store import ModelStore
        from infra.delta.duckdb_views import connect

        model = self._source(rule).rule.model
        if not model:
            raise Usage(f"rule '{rule}' has no model yet: hg.models.train(...), then put_live")
        judge = ModelStore(store_folder(self._settings)).get(model)
        duck = connect(self._settings.lake_root, needs=("gold.device_hour",), only=())
        try:
            return drift_of(duck, judge, *_span(since, until))
        finally:
            duck.close()

    def put_live(self, model: TrainedModel) -> str:
        """Let the rule run with this model from the next micro-batch; the hash of the pack."""
        from alerts.anomaly.store import ModelStore

        source = self._source(model.rule)
        ModelStore(store_folder(self._settings)).use(source.rule.id, model.hash)
        return recompile(self._settings).pack.hash

    def _source(self, rule: str) -> ModelSource:
        source = model_rules(self._settings).named(rule)
        if source is None:
            raise Usage(f"no rule '{rule}' of kind model; hg.models.list() shows them")
        return source


def _span(since: datetime | str, until: datetime | str) -> tuple[datetime, datetime]:
    begin, end = (_instant(name, v) for name, v in (("since", since), ("until", until)))
    if begin >= end:
        raise Usage(f"since {begin.isoformat()}: not before until {end.isoformat()}")
    return begin, end


def _instant(name: str, value: Any) -> datetime:
    if isinstance(value, str):
        return instant(name, value)
    if value.tzinfo is None:
        raise Usage(f"{name} {value}: name the zone, such as datetime(..., tzinfo=UTC)")
    moment: datetime = value
    return moment
