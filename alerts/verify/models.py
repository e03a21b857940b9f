"""What models told, judged again by the hours that they judged: a part of `headgate verify`.

gold.device_hour has what each batch of job `models` added to a device's hour, attributed as known
then. So the sums are what the model saw, and the model that it names says again what it says of
them: an hour beyond the threshold has one finding, any other has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from alerts.anomaly.finding import finding_id
from alerts.rulepack.rule_pack import RulePack
from alerts.verify.differences import Difference
from infra.errors import Fatal

if TYPE_CHECKING:
    import duckdb

    from alerts.anomaly.store import Judged

_HOURS = """
SELECT rule_id, entity, epoch(hour)::BIGINT, coalesce(any_value(model) FILTER (told),
       arg_max(model, received_at)), count(*) FILTER (told), epoch_us(max(received_at)),
       {'events': sum(events)::BIGINT, 'bytes_out': sum(bytes_out)::BIGINT,
        'bytes_in': sum(bytes_in)::BIGINT,
        'steps': flatten(list(list_transform(top, x -> x.snippet)) FILTER (top IS NOT NULL))}
FROM gold.device_hour WHERE hour >= $since AND hour < $until GROUP BY rule_id, entity, hour
"""
_FINDINGS = """
SELECT finding_id, any_value(rule_id), any_value(pack), count(*),
       epoch(any_value(window_start))::BIGINT
FROM gold.finding
WHERE kind = 'model' AND window_start >= $since AND window_start < $until GROUP BY finding_id
"""
_EXISTS = """
SELECT 1 FROM information_schema.tables
WHERE table_schema = 'gold' AND table_name = 'device_hour'
"""
_KEPT = "SELECT coalesce(epoch(min(hour))::BIGINT, 0) FROM gold.device_hour"
_THROUGH = "SELECT coalesce(epoch_us(max(started_at)), 0) FROM ops.ledger WHERE job = 'models'"


class Judge(Protocol):
    """A model, as far as it is asked here (`alerts.anomaly.store.Model`)."""

    def judge(self, entity: str, hour: int, values: Mapping[str, Any]) -> Judged:
        """The score of a device's hour."""
        ...


@dataclass(frozen=True)
class ModelHour:
    """A device's hour as job `models` recorded it. `told`: batches that made its finding."""

    rule_id: str
    entity: str
    hour: int
    model: str
    told: int
    received: int
    values: Mapping[str, Any]

    @property
    def finding_id(self) -> str:
        """Of the finding that it has, if it has one."""
        return finding_id(self.rule_id, self.entity, self.hour)


@dataclass(frozen=True)
class ModelFinding:
    """A model's finding; `times`: its rows in gold.finding."""

    finding_id: str
    rule_id: str
    pack: str
    times: int
    hour: int


@dataclass(frozen=True)
class KnownModel:
    """What else there is to know: the packs of the span, the models, and how far both go.

    `through`: arrivals that job `models` is through with, microseconds. `kept`: the oldest
    hour in gold.device_hour, seconds.
    """

    packs: Sequence[RulePack]
    model: Callable[[str], Judge]
    through: int
    kept: int = 0


def judge_hours(
    hours: Iterable[ModelHour], findings_of_models: Iterable[ModelFinding], known: KnownModel
) -> tuple[int, list[Difference]]:
    """How many hours say the same again, and the differences."""
    findings = {hour_row.finding_id: hour_row for hour_row in findings_of_models}
    same, different = 0, []
    for hour in hours:
        wrong = _judged(hour, findings.pop(hour.finding_id, None), known)
        same += wrong is None
        different += [wrong] if wrong else []
    return same, different + list(_without_hours(findings.values(), known))


def _judged(
    hour: ModelHour, model_finding: ModelFinding | None, known: KnownModel
) -> Difference | None:
    difference = Difference(
        "hour", "other", hour.finding_id, hour.rule_id, hour.hour * 1_000_000, "unexplained"
    )
    # An hour is told once for good; any other number is a fault whatever the model says.
    if (model_finding.times if model_finding else 0) != hour.told or hour.told > 1:
        times = model_finding.times if model_finding else 0
        rows = f"{times} rows in gold.finding, {hour.told} in device_hour"
        late = model_finding is None and hour.received >= known.through
        return replace(difference, cause="unfinished" if late else "unexplained", detail=rows)
    packs = [
        pack for pack in known.packs if model_finding is None or pack.hash == model_finding.pack
    ]
    limits = [
        rule.threshold
        for pack in packs
        for rule in pack.models
        if rule.id == hour.rule_id and rule.model == hour.model
    ]
    if not limits:
        return replace(difference, cause="pack lost", detail=hour.entity) if model_finding else None
    try:
        score = known.model(hour.model).judge(hour.entity, hour.hour, hour.values).score
    except Fatal as error:
        return replace(difference, cause="pack lost", detail=str(error))
    beyond = [score >= limit for limit in limits]
    if (model_finding is not None) in beyond:
        # Of an hour without a finding it is not recorded which pack's threshold it was held to.
        return None
    how = "extra" if model_finding else "missing"
    return replace(
        difference, how=how, detail=f"{hour.entity}: model {hour.model} scores {score:g}"
    )


def _without_hours(findings: Iterable[ModelFinding], known: KnownModel) -> Iterator[Difference]:
    for finding in findings:
        # Retention may have taken the hours while the findings stay.
        cause = "gone" if finding.hour < known.kept else "unexplained"
        hour = finding.hour * 1_000_000
        yield Difference(
            "hour", "extra", finding.finding_id, finding.rule_id, hour, cause, "no hour recorded"
        )


def read_hours(
    lake: duckdb.DuckDBPyConnection, since: datetime, until: datetime
) -> tuple[list[ModelHour], list[ModelFinding]]:
    """The hours that begin in [since, until), and the findings of hours that do."""
    if not lake.execute(_EXISTS).fetchall():
        return [], []  # no model was ever trained
    span = {"since": since, "until": until}
    hours = [ModelHour(*row) for row in lake.execute(_HOURS, span).fetchall()]
    return hours, [ModelFinding(*row) for row in lake.execute(_FINDINGS, span).fetchall()]


def known_of(
    lake: duckdb.DuckDBPyConnection, packs: Sequence[RulePack], model: Callable[[str], Judge]
) -> KnownModel:
    """What the lake says beside the hours."""
    (kept,), (through,) = (lake.execute(sql).fetchall()[0] for sql in (_KEPT, _THROUGH))
    return KnownModel(packs, model, int(through), int(kept))
