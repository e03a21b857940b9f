"""Verify's judge of models: an hour beyond the threshold has one finding, any other none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from alerts.anomaly.store import Judged
from alerts.rulepack.rule_pack import ModelRule, RulePack
from alerts.verify.models import KnownModel, ModelFinding, ModelHour, judge_hours
from infra.errors import Fatal


def pack(threshold: float, name: str = "h1") -> RulePack:
    rule = ModelRule(
        id="m",
        title="Much",
        model=name,
        features=("bytes_out",),
        threshold=threshold,
        history_days=28,
    )
    return RulePack(models=(rule,))


PACK = pack(6.0)


class Sent:
    """A model whose score is how much was sent."""

    def judge(self, entity: str, hour: int, values: Mapping[str, float]) -> Judged:
        sent = values["bytes_out"]
        return Judged(sent, "bytes_out", round(sent), 0, 1, 1, 20, 5)


def model(name: str) -> Sent:
    if name != "h1":
        raise Fatal(f"no model {name}")
    return Sent()


def hour(sent: float, told: int = 0, **more: Any) -> ModelHour:
    plain = {"rule_id": "m", "entity": "device|aa", "hour": 7_200, "model": "h1", "received": 5}
    return ModelHour(told=told, values={"bytes_out": sent}, **(plain | more))


def found(of: ModelHour, **more: Any) -> ModelFinding:
    plain = {"rule_id": "m", "pack": PACK.hash, "times": 1, "hour": of.hour}
    return ModelFinding(finding_id=of.finding_id, **(plain | more))


KNOWN = KnownModel([PACK], model, through=10, kept=3_600)
LOUD, QUIET = hour(8, told=1), hour(2)


@pytest.mark.parametrize("pair", [(LOUD, [found(LOUD)]), (QUIET, []), (hour(6, 1), [found(LOUD)])])
def test_an_hour_that_says_the_same_again(pair: tuple[ModelHour, list[ModelFinding]]) -> None:
    assert judge_hours([pair[0]], pair[1], KNOWN) == (1, [])


@pytest.mark.parametrize(
    ("one", "findings", "told"),
    [
        (hour(8), [], ("missing", "unexplained")),
        (hour(2, told=1), [found(LOUD)], ("extra", "unexplained")),
        (LOUD, [], ("other", "unexplained")),
        (hour(8, told=1, received=11), [], ("other", "unfinished")),
        (QUIET, [found(QUIET)], ("other", "unexplained")),
        (LOUD, [found(LOUD, times=2)], ("other", "unexplained")),
        (hour(8, told=2), [found(LOUD, times=2)], ("other", "unexplained")),
        (LOUD, [found(LOUD, pack="gone")], ("other", "pack lost")),
    ],
)
def test_an_hour_that_does_not_is_told_with_its_cause(
    one: ModelHour, findings: list[ModelFinding], told: tuple[str, str]
) -> None:
    same, (difference,) = judge_hours([one], findings, KNOWN)
    assert same == 0
    assert (difference.how, difference.cause) == told
    assert difference.detail
    assert (difference.what, difference.at) == ("hour", 7_200_000_000)


def test_a_model_that_is_lost_is_named() -> None:
    known = KnownModel([pack(1.0, "h2")], model, through=10)
    _, (difference,) = judge_hours([hour(2, model="h2")], [], known)
    assert (difference.cause, difference.detail) == ("pack lost", "no model h2")


def test_a_finding_without_an_hour_is_gone_only_with_all_of_its_time() -> None:
    old, new = hour(8, told=1, hour=0), LOUD
    _, differences = judge_hours([], [found(old), found(new)], KNOWN)
    assert [(one.how, one.cause) for one in differences] == [
        ("extra", "gone"),
        ("extra", "unexplained"),
    ]


def test_of_a_threshold_that_changed_either_will_do() -> None:
    """Which pack an hour without a finding was held to is recorded nowhere."""
    known = KnownModel([PACK, pack(9.0)], model, through=10)
    assert judge_hours([hour(8)], [], known) == (1, [])
    assert judge_hours([hour(9)], [], known)[1][0].how == "missing"
