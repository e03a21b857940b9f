"""The rule editor: a text is checked as it is written, compared, kept, and taken away.

What somebody typed is never lost by a refusal: the page comes back with it, and says what to do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import quote, urlencode

from fastapi import Depends, Query, Request
from fastapi.responses import RedirectResponse, Response
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from alerts.rulebook.rule_copy import copied_text, new_name, new_text
from alerts.rulebook.rule_draft import MOST_EVENTS, DraftOptions, drafted, tests_of_events
from alerts.rulebook.rule_versions import text_diff
from api.console.page import Page, console_router
from api.console.pages.rules import Engineer
from api.console.render import respond
from api.console.request import CheckedForm, Here
from api.console.time_words import earliest
from api.console.wrong_values import wrong_value
from api.routes.access import Services
from api.routes.rules.reading import audited_switch
from api.services.triage import Stale
from api.wire.rules import DraftText, RuleDetail, RuleText
from infra.errors import HeadgateError, Usage

router = console_router()
PAGE = Page("rule-editor", "Rule editor", router, role="engineer")
HISTORY_SPANS = (("-24h", "a day"), ("-7d", "7 days"), ("-30d", "30 days"), ("-90d", "90 days"))


@dataclass(frozen=True)
class EditedRule:
    """What the page holds. `rule`: id of the own rule that it changes, `copy`: of the rule that it
    copies; `version`: the text of the rule that was looked at."""

    text: str
    rule: str = ""
    copy: str = ""
    version: str = ""
    reason: str = ""
    switch_off: bool = False

    @property
    def key(self) -> str:
        """What names it in the browser, which keeps what is typed until it is saved."""
        return self.rule or (f"copy:{self.copy}" if self.copy else "new")

    @classmethod
    def of(cls, form: dict[str, list[str]]) -> EditedRule:
        """As a form brings it."""
        given = {name: (form.get(name) or [""])[0] for name in ("rule", "copy", "version")}
        return cls(
            text=form_text(form),
            reason=(form.get("reason") or [""])[0].strip(),
            switch_off=bool(form.get("switch_off")),
            **given,
        )


def form_text(form: dict[str, list[str]]) -> str:
    """The text of a form, whose line ends browsers make CRLF."""
    return (form.get("text") or [""])[0].replace("\r\n", "\n")


@router.get("/rule-editor")
def editor_page(
    request: Request,
    services: Here,
    session: Engineer,
    rule: str = "",
    copy: str = "",
    version: str = "",
    event: Annotated[list[str] | None, Query()] = None,
    since: str = "",
) -> Response:
    """A rule of one's own, also as it was in another version; a copy; a new one, also with log
    source, fields and tests of chosen events (`since`: none is older)."""
    if rule:
        if version and not services.rules.has(rule):
            # It was taken away: kept again, it is a rule of the same id.
            return _page(request, services, EditedRule(_version_text(services, rule, version)))
        detail = _detail(services, rule)
        if not detail.own:
            return RedirectResponse(f"/rule-editor?{urlencode({'copy': detail.rule.id})}", 303)
        older = services.rules.version(rule, version, None).text if version else None
        text = detail.text if older is None else older
        return _page(
            request, services, EditedRule(text, rule=detail.rule.id, version=detail.version)
        )
    if copy:
        detail = _detail(services, copy)
        draft = EditedRule(copied_text(detail.text, detail.rule.id), copy=detail.rule.id)
        counted = services.rules.counted_by(detail.rule.id)
        # Of two rules that find the same each alert comes twice.
        draft = replace(draft, switch_off=detail.rule.state == "on" and not counted)
        return _page(request, services, draft)
    if event:
        return _page(request, services, EditedRule(_text_from(services, event, since)))
    return _page(request, services, EditedRule(new_text(session.caller.name)))


def _text_from(services: Services, uids: list[str], since: str) -> str:
    """A rule drafted from events; raises `Usage` where none can be."""
    if len(uids) > MOST_EVENTS:
        raise Usage(f"{len(uids)} events; a rule is made from at most {MOST_EVENTS}")
    now = datetime.now(UTC)
    start = earliest("since", since, now) or datetime.min.replace(tzinfo=UTC)
    tests = tests_of_events(services.reader.rows, list(dict.fromkeys(uids)), start)
    return drafted(tests, DraftOptions(new_name()))


@router.post("/rule-editor/check")
def check_edited(
    request: Request, services: Here, session: Engineer, form: CheckedForm
) -> Response:
    """What does not compile, with line and remedy; what is odd; and how its tests go."""
    try:
        checked = services.rules.check(DraftText(text=form_text(form)))
    except ValidationError:
        return respond(request, "rule_check.html", checked=None)
    return respond(request, "rule_check.html", checked=checked)


@router.post("/rule-editor/diff")
def edited_diff(request: Request, services: Here, session: Engineer, form: CheckedForm) -> Response:
    """What differs from the rule in force, or from the one that is copied."""
    draft = EditedRule.of(form)
    other = draft.rule or draft.copy
    if not other:
        raise Usage("a new rule has nothing before it to be compared with")
    before = _detail(services, other)
    named = (f"{before.rule.title}, now", "your text")
    return respond(request, "rule_diff.html", diff=text_diff(before.text, draft.text, named))


def _page_address(
    rule: str = "",
    copy: str = "",
    version: str = "",
    event: Annotated[list[str] | None, Query()] = None,
    since: str = "",
) -> None:
    """The query that the page was opened with; what its form holds is newer."""


# At the address of the page, so that it opens again where a session ended meanwhile.
@router.post("/rule-editor", dependencies=[Depends(_page_address)])
def save_edited(request: Request, services: Here, session: Engineer, form: CheckedForm) -> Response:
    """Keep it, or take it away; where that is refused, the page comes back with what was typed."""
    draft, who = EditedRule.of(form), session.caller.name
    if form.get("act") == ["remove"]:
        return _remove(request, services, who, draft)
    try:
        text = RuleText(text=draft.text, reason=draft.reason)
        if draft.rule:
            # An entity tag in quotes, as `If-Match` brings it over REST: what somebody changed
            # meanwhile is not overwritten.
            saved = services.rules.replace(who, draft.rule, text, f'"{draft.version}"')
        else:
            saved = services.rules.create(who, text)
    except ValidationError as error:
        return _refused(request, services, draft, wrong_value(error))
    except Stale:
        return _overtaken(request, services, draft)
    except HeadgateError as error:
        return _refused(request, services, draft, str(error))
    # After the copy is kept: where that is refused, the rule it copies must go on.
    left_on = draft.switch_off and not _switch_off(services, who, draft.copy, saved.id)
    named = {"saved": draft.key} | ({"left_on": "1"} if left_on else {})
    return RedirectResponse(f"/rules/{quote(saved.id, safe='')}?{urlencode(named)}", 303)


def _remove(request: Request, services: Services, who: str, draft: EditedRule) -> Response:
    if not draft.reason:
        return _refused(request, services, draft, "say why, for those who wonder later")
    try:
        services.rules.remove(who, draft.rule, draft.reason, f'"{draft.version}"')
    except Stale:
        return _overtaken(request, services, draft)
    except HeadgateError as error:
        return _refused(request, services, draft, str(error))
    return RedirectResponse(f"/rules?{urlencode({'removed': draft.rule})}", 303)


def _switch_off(services: Services, who: str, copied: str, own: str) -> bool:
    """Switch the rule off that was copied; False where that is refused."""
    reason = f"replaced by {own}"
    try:
        switched = services.rules.switch(who, copied, on=False, reason=reason)
    except HeadgateError:
        return False
    audited_switch(services, who, "rule.disable", switched, reason)
    return True


def _version_text(services: Services, rule: str, version: str) -> str:
    try:
        return services.rules.version(rule, version, None).text
    except Usage as error:
        raise HTTPException(404, str(error)) from None


def _detail(services: Services, rule: str) -> RuleDetail:
    try:
        return services.rules.one(rule)
    except Usage as error:
        raise HTTPException(404, str(error)) from None


def _refused(request: Request, services: Services, draft: EditedRule, problem: str) -> Response:
    gone = bool(draft.rule) and not services.rules.has(draft.rule)
    if gone:
        problem = "Somebody took the rule away meanwhile; saved again, yours is a new one."
        draft = replace(draft, rule="", version="")
    return _page(request, services, draft, 422, problem=problem)


def _overtaken(request: Request, services: Services, draft: EditedRule) -> Response:
    """Somebody was quicker: who, and what saving would now undo of theirs."""
    now = services.rules.one(draft.rule)
    newest = services.rules.versions(draft.rule).items[0]
    theirs = text_diff(now.text, draft.text, ("theirs, as it is now", "yours"))
    # From here on it has been looked at: saved again, it takes the place of theirs.
    draft = replace(draft, version=now.version)
    return _page(request, services, draft, 412, newest=newest, theirs=theirs)


def _page(
    request: Request, services: Services, draft: EditedRule, status: int = 200, **more: Any
) -> Response:
    other = draft.rule or draft.copy
    detail = services.rules.one(other) if other and services.rules.has(other) else None
    context = {
        "page": PAGE,
        "draft": draft,
        "detail": detail,
        "counted_by": services.rules.counted_by(draft.copy) if draft.copy else [],
        "spans": HISTORY_SPANS,
        "problem": None,
        "newest": None,
        "theirs": "",
    }
    return respond(request, "rule_editor.html", status, **context | more)
