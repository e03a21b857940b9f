"""A team's own rules: checked, kept, changed, taken away; and what they were before."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Path, Query, Response

from api.problems import responses
from api.routes.access import Here, Who, wants
from api.routes.rules.reading import RuleName
from api.wire import rules as wire

router = APIRouter(prefix="/api/v1/rules", tags=["rules"])
_WRITES = [Depends(wants("engineer"))]
IfMatch = Annotated[
    str,
    Header(description="ETag of the rule as it was looked at; *: whatever it is now"),
]
VersionName = Annotated[str, Path(description="version of its text")]


@router.post(
    "/draft",
    summary="Check a text that may become a rule",
    responses=responses(413, 422, 503),
    dependencies=_WRITES,
)
def check_draft(services: Here, draft: wire.DraftText) -> wire.DraftChecked:
    """What does not compile, with line and remedy; and its tests. Nothing is kept."""
    return services.rules.check(draft)


@router.post(
    "",
    status_code=201,
    summary="Keep a rule of your own",
    responses=responses(413, 422, 503),
    dependencies=_WRITES,
)
def create_rule(services: Here, who: Who, asked: wire.RuleText, answer: Response) -> wire.RuleSaved:
    """In the first folder of `alerts.rules`, as a file of its own. It has to compile, and the
    tests that it brings have to pass."""
    saved = services.rules.create(who.name, asked)
    answer.headers["Location"] = f"/api/v1/rules/{saved.id}"
    answer.headers["ETag"] = f'"{saved.version}"'
    return saved


@router.put(
    "/{rule}",
    summary="Change a rule of your own",
    responses=responses(404, 412, 413, 422, 428, 503),
    dependencies=_WRITES,
)
def replace_rule(
    services: Here, who: Who, rule: RuleName, asked: wire.RuleText, if_match: IfMatch,
    answer: Response,
) -> wire.RuleSaved:  # fmt: skip
    """Its whole file gets this text, in which the rule keeps its id. 412 where it changed since."""
    saved = services.rules.replace(who.name, rule, asked, if_match)
    answer.headers["ETag"] = f'"{saved.version}"'
    return saved


@router.delete(
    "/{rule}",
    summary="Take a rule of your own away",
    responses=responses(404, 412, 422, 428, 503),
    dependencies=_WRITES,
)
def remove_rule(
    services: Here,
    who: Who,
    rule: RuleName,
    if_match: IfMatch,
    reason: Annotated[str, Query(max_length=2_000, description="for those who wonder later")] = "",
) -> wire.RuleSaved:
    """Refused where other rules count it. Its versions stay, by its id."""
    return services.rules.remove(who.name, rule, reason, if_match)


@router.get("/{rule}/versions", summary="Versions of a rule", responses=responses(404, 422, 503))
def list_versions(services: Here, rule: RuleName) -> wire.RuleVersionList:
    """The texts that were saved here with who and when, and what the file holds now."""
    return services.rules.versions(rule)


@router.get(
    "/{rule}/versions/{version}",
    summary="One version of a rule",
    responses=responses(404, 422, 503),
)
def one_version(
    services: Here,
    rule: RuleName,
    version: VersionName,
    against: Annotated[
        str | None, Query(description="version to compare it with; none: that of now")
    ] = None,
) -> wire.RuleVersionText:
    """Its text, and what differs from it to the other one as a unified diff."""
    return services.rules.version(rule, version, against)
