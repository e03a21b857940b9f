"""Less noise of one rule: filters that its verdicts propose or that it has, and other counts."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query

from alerts.tuning.rule_tuning import require_tunable
from api.problems import responses
from api.routes.access import Here, Who, wants
from api.routes.rules.reading import Days, RuleName
from api.services.rules import tuning
from api.wire import rules as wire

router = APIRouter(prefix="/api/v1/rules", tags=["rules"])


@router.get(
    "/{rule}/proposals",
    summary="Filters that verdicts propose",
    responses=responses(404, 422, 503),
    dependencies=[Depends(wants("viewer"))],
)
def list_filter_proposals(services: Here, rule: RuleName, days: Days = 30) -> wire.FilterProposals:
    """Each removes alerts judged false or benign and takes no event of one that was judged true;
    what it would have hidden is counted over all retained alerts."""
    return tuning.rule_proposals(services.settings, services.reader, rule, days)


@router.post(
    "/{rule}/filters",
    status_code=201,
    summary="Keep a filter of a rule",
    responses=responses(404, 422, 503),
    dependencies=[Depends(wants("engineer"))],
)
def keep_filter(
    services: Here, who: Who, rule: RuleName, asked: wire.NewFilter
) -> wire.FilterSaved:
    """As a Sigma filter in the first folder of `alerts.rules`, with owner, reason and end."""
    saved = tuning.save_filter(services.settings, services.reader, who.name, rule, asked)
    services.rules.forget()
    return saved


@router.get(
    "/{rule}/filters", summary="List the filters of a rule", responses=responses(404, 422, 503)
)
def list_rule_filters(services: Here, rule: RuleName) -> wire.RuleFilterList:
    """Those that name it or every rule of its log source, with owner, reason and end; also one
    that is not in force, and why."""
    described = require_tunable(services.rules.source(rule).rule, rule)
    return tuning.filter_list(services.settings, services.rules.refused(), described)


@router.delete(
    "/{rule}/filters/{filter_id}",
    summary="End a filter of a rule",
    responses=responses(404, 422, 503),
    dependencies=[Depends(wants("engineer"))],
)
def end_rule_filter(
    services: Here,
    who: Who,
    rule: RuleName,
    filter_id: Annotated[str, Path(description="id of the filter", max_length=500)],
    reason: Annotated[str, Query(max_length=2_000, description="for those who wonder later")] = "",
) -> wire.FilterEnded:
    """Its file is taken away, and the rule runs without it. Refused for a file that holds more or
    narrows other rules too."""
    described = require_tunable(services.rules.source(rule).rule, rule)
    with services.rules.changing():
        return tuning.end_rule_filter(
            services.settings, who.name, described, filter_id, reason.strip()
        )


@router.post(
    "/{rule}/threshold",
    status_code=201,
    summary="Keep another count or window of a correlation",
    responses=responses(404, 422, 503),
    dependencies=[Depends(wants("engineer"))],
)
def keep_other_count(
    services: Here, who: Who, rule: RuleName, asked: wire.NewThreshold
) -> wire.ThresholdSaved:
    """As a copy in the first folder of `alerts.rules`; the rule it is of is switched off.
    What numbers would have raised, `POST /api/v1/rule-jobs` counts with kind `thresholds`."""
    saved = tuning.save_threshold(services.settings, who.name, rule, asked)
    services.rules.forget()
    return saved
