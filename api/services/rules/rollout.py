"""Packs, rules in shadow, and many rules at once: what `headgate rules` does, over REST."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from alerts.rollout.bulk import chosen_for_bulk, do_to_all
from alerts.rollout.pack_list import list_packs, pack_folder
from alerts.rollout.pack_plan import KEPT
from alerts.rollout.pack_plan import PackPlan as Plan
from alerts.rollout.pack_update import plan_rollback, put_version
from alerts.rollout.pack_versions import PackVersion, PackVersions, again, former_version
from alerts.rollout.shadow import ShadowWish
from alerts.rollout.shadow_report import shadow_lines
from alerts.rulebook.rule_choice import RuleCriteria
from alerts.rulebook.rule_store import read_rule_files
from api.observability.audit_log import audit_request
from api.services.reader import Reader
from api.services.rules.desk import RuleDesk
from api.services.visibility import in_force_when
from api.wire import rollout as wire
from infra.config.settings import Settings
from infra.errors import Usage

_AUDITED = 100
"""Ids of rules that one line of the audit names."""


def packs(settings: Settings, desk: RuleDesk) -> wire.PackList:
    """The packs."""
    items = list_packs(settings, desk.every())
    return wire.PackList(items=[wire.PackItem(**asdict(item)) for item in items])


def pack_versions(settings: Settings, pack: str) -> wire.PackVersionList:
    """The versions of a pack; raises `Usage` for one that is none."""
    known = PackVersions(settings).of(pack_folder(settings, pack))
    return wire.PackVersionList(
        items=[
            wire.PackVersionItem(
                version=each.version,
                taken=each.taken,
                act=each.act,
                by=each.who,
                reason=each.reason,
                source=each.source,
                only=each.only,
                files=len(each.files),
            )
            for each in reversed(known)
        ]
    )


def rollback_plan(settings: Settings, pack: str, to: str | None) -> wire.PackPlan:
    """What going back would change; raises `Usage` where there is no such version."""
    target, plan = _plan(settings, pack, to or "")
    return wire.PackPlan(
        pack=str(plan.folder),
        version=target.version,
        rules=told_rules(plan),
        changes=plan_changes(plan),
        same=plan.same,
    )


def told_rules(plan: Plan) -> list[wire.PackRule]:
    """What becomes of each rule."""
    names = ("id", "title", "level", "path", "act", "note")
    return [wire.PackRule(**{name: getattr(rule, name) for name in names}) for rule in plan.rules]


def roll_back(
    settings: Settings, desk: RuleDesk, who: str, pack: str, asked: wire.RollbackAct
) -> wire.PackPut:
    """Go back; raises `Usage` where that changes another number of rules than was looked at."""
    with desk.changing():
        target, plan = _plan(settings, pack, asked.to)
        require_count(asked.changes, plan_changes(plan))
        taken = again(target, who, asked.reason.strip())
        put = put_version(settings, plan, taken)
    in_force = put.pack.hash if put.pack else ""
    detail = {"version": taken.version, "reason": asked.reason.strip(),
              "changes": asked.changes, "pack": in_force}  # fmt: skip
    audit_request(settings, "pack.rollback", "ok", who=who, target=pack, detail=detail)
    return wire.PackPut(
        version=taken.version,
        changes=asked.changes,
        pack=in_force,
        visible=in_force_when(settings),
    )


def _plan(settings: Settings, pack: str, to: str) -> tuple[PackVersion, Plan]:
    folder = pack_folder(settings, pack)
    target = former_version(PackVersions(settings).of(folder), folder, to)
    return target, plan_rollback(settings, folder, target)


def plan_changes(plan: Plan) -> int:
    """How many rules it adds, changes or removes."""
    return len(plan.rules) - plan.count(KEPT)


def count_switch(settings: Settings, plan: wire.SwitchPlan) -> wire.SwitchCount:
    """What a change of many rules would do; raises `Usage` where no rule is meant."""
    chosen = chosen_for_bulk(
        read_rule_files(settings), plan.act, plan.rules, criteria_of(plan.filter)
    )
    names = ("id", "name", "title", "level")
    return wire.SwitchCount(
        rules=len(chosen.changing),
        unchanged=len(chosen.chosen) - len(chosen.changing),
        items=[
            wire.CountedRule(**{name: getattr(rule, name) for name in names})
            for rule in chosen.changing
        ],
    )


def switch_many(
    settings: Settings, desk: RuleDesk, who: str, act: wire.SwitchAct
) -> wire.SwitchDone:
    """Do it; raises `Usage` where that changes another number of rules than was counted."""
    shadow_wish = ShadowWish(who, act.reason.strip(), act.days)
    with desk.changing():
        files = read_rule_files(settings)
        choice = chosen_for_bulk(files, act.act, act.rules, criteria_of(act.filter))
        require_count(act.count, len(choice.changing))
        pack = do_to_all(files, choice, shadow_wish)
    detail: dict[str, Any] = {
        "rules": len(choice.changing),
        "ids": [rule.id for rule in choice.changing[:_AUDITED]],
        "reason": shadow_wish.reason,
        "pack": pack.hash if pack else None,
    }
    audit_request(settings, f"rules.{act.act}", "ok", who=who, detail=detail)
    return wire.SwitchDone(
        rules=len(choice.changing),
        pack=pack.hash if pack else None,
        visible=in_force_when(settings),
    )


def require_count(named: int, counted: int) -> None:
    """Raises `Usage` where another number is named than would change now."""
    if named != counted:
        raise Usage(
            f"{named} rules are named, {counted} would change now; look again (preview) and name "
            "that number, so that nothing more is changed than was looked at"
        )


def criteria_of(asked: wire.RuleFilter | wire.PackImportWanted) -> RuleCriteria:
    """What rules must be like; a pack that is imported has no packs within it."""
    return RuleCriteria(
        tags=tuple(asked.tags),
        levels=tuple(asked.levels),
        statuses=tuple(asked.statuses),
        products=tuple(asked.products),
        packs=tuple(asked.packs) if isinstance(asked, wire.RuleFilter) else (),
    )


def shadows(settings: Settings, reader: Reader) -> wire.ShadowList:
    """What each rule in shadow would have alerted; raises `Retryable` without a lake."""
    lines = shadow_lines(settings, reader.rows, datetime.now(UTC))
    items = []
    for line in lines:
        outcome = line.outcome
        items.append(
            wire.ShadowItem(
                rule_id=line.rule_id,
                name=line.name,
                title=line.title,
                changes=line.mark.changes,
                since=line.mark.since,
                until=line.mark.until,
                over=line.over,
                findings=outcome.findings if outcome else None,
                alerts=outcome.alerts if outcome else None,
                per_day=outcome.per_day if outcome else None,
                busiest=outcome.busiest if outcome else "",
                muted=line.muted,
                by=line.mark.who,
                reason=line.mark.reason,
            )
        )
    return wire.ShadowList(items=items)
