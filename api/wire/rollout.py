"""Packs of rules, rules in shadow, and changes of many rules at once."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from alerts.rollout.bulk import BulkVerb
from alerts.rulepack.shadow_marks import MOST_DAYS
from api.wire.base import WireModel

_WHY = Field("", max_length=2_000, description="for those who wonder later")
MOST_NAMED = 1_000
"""Rules that one request names, and values of a criterion."""

MOST_PACK_FILES = 20_000


class PackItem(WireModel):
    """A folder of rules."""

    pack: str = Field(description="its name", examples=["public"])
    version: str = Field(description="as it was imported; empty: no import is on record")
    source: str = Field(description="folder that it was imported from")
    rules: int = Field(description="rules that load")
    on: int = Field(description="rules that alert or are counted")
    off: int = Field(description="rules that are switched off")
    shadow: int = Field(description="rules, and changed texts of rules, that are tried in shadow")
    edited: int = Field(description="files that are other than they were imported")
    imported: datetime | None = Field(description="when it was imported, UTC")
    by: str = Field(description="who imported it")
    only: str = Field(description="criteria that chose its rules; empty: all")
    folder: str = Field(description="where it lies")


class PackList(WireModel):
    """The packs, in the order of the settings."""

    items: list[PackItem] = Field(description="the bundled rules first")


class PackVersionItem(WireModel):
    """One import of a pack, or one that was gone back to."""

    version: str = Field(description="its name")
    taken: datetime = Field(description="when, UTC")
    act: str = Field(description="imported, rollback, or before: the folder as it was found")
    by: str = Field(description="who")
    reason: str = Field(description="why, as they said")
    source: str = Field(description="folder that it was imported from")
    only: str = Field(description="criteria that chose its rules; empty: all")
    files: int = Field(description="files in it")


class PackVersionList(WireModel):
    """The versions of a pack, newest first."""

    items: list[PackVersionItem] = Field(description="the newest ten at most")


class PackRule(WireModel):
    """What becomes of one rule."""

    id: str = Field(description="never changes")
    title: str = Field(description="what it is about")
    level: str = Field(description="informational, low, medium, high or critical")
    path: str = Field(description="its file, below the pack's folder")
    act: str = Field(description="added, changed, removed, or kept as it is here")
    note: str = Field(description="why it is kept, or what changes")


class PackPlan(WireModel):
    """What another version would change; nothing is done yet."""

    pack: str = Field(description="folder of the pack")
    version: str = Field(description="that version")
    rules: list[PackRule] = Field(description="rules that it changes, or that are kept")
    changes: int = Field(description="those that it changes: what the act has to name")
    same: int = Field(description="rules that stay as they are")


class RollbackWanted(WireModel):
    """A version that somebody thinks of going back to."""

    to: str | None = Field(None, max_length=200, description="its name; null: the one before")


class RollbackAct(WireModel):
    """Goes back to what was looked at."""

    to: str = Field(min_length=1, max_length=200, description="version that the preview named")
    changes: int = Field(ge=0, description="how many: the number that the preview named")
    reason: str = _WHY


class PackPut(WireModel):
    """A version that is in place now."""

    version: str = Field(description="its name")
    changes: int = Field(description="rules that were added, changed or removed")
    pack: str = Field(description="hash of the rule pack that is in force now")
    visible: str = Field(description="when it takes effect")


class PackFile(WireModel):
    """A file of a pack: rules as YAML, or a licence."""

    path: str = Field(min_length=1, max_length=500, description="below the pack's folder",
                      examples=["windows/process_creation/encoded_command.yml"])  # fmt: skip
    text: str = Field(max_length=1 << 20, description="what is in it")


class PackImportWanted(WireModel):
    """Files that somebody thinks of importing as a version of a pack."""

    files: list[PackFile] = Field(
        min_length=1, max_length=MOST_PACK_FILES,
        description="all of them: what is left out is removed",
    )  # fmt: skip
    tags: list[str] = Field([], max_length=MOST_NAMED, examples=[["attack.t1059"]],
                            description="only rules with one of these, or below it")  # fmt: skip
    levels: list[str] = Field([], max_length=MOST_NAMED, description="only rules of these levels")
    statuses: list[str] = Field([], max_length=MOST_NAMED, description="only rules of these "
                                "statuses; none: all but deprecated and unsupported")  # fmt: skip
    products: list[str] = Field([], max_length=MOST_NAMED, description="only of these products")
    version: str = Field("", max_length=200, description="its name; empty: by its content")


class PackImportAct(PackImportWanted):
    """Imports what was looked at."""

    changes: int = Field(ge=0, description="how many: the number that the preview named")
    shadow_days: int | None = Field(
        None, ge=1, le=MOST_DAYS,
        description="try what is new or changed for so long first; null: it alerts at once",
    )  # fmt: skip
    source: str = Field("", max_length=500, description="where the files come from",
                        examples=["https://git.example.org/rules at 4f2c81d"])  # fmt: skip
    reason: str = _WHY


class PackRefusals(WireModel):
    """Rules that do not load, of one kind."""

    kind: str = Field(description="why", examples=["field without a mapping"])
    rules: int = Field(description="how many")
    examples: list[str] = Field(description="some of them, each with its reason and remedy")


class PackDead(WireModel):
    """A rule that loads and can never fire."""

    id: str = Field(description="never changes")
    title: str = Field(description="what it is about")
    reason: str = Field(description="field or parser at fault")


class PackImportPlan(PackPlan):
    """What an import would change; nothing is done yet."""

    loaded: int = Field(description="rules that load")
    refused: list[PackRefusals] = Field(description="rules that do not, the most frequent first")
    no_source: int = Field(description="rules that load, and whose sources are not configured")
    cannot_fire: list[PackDead] = Field(description="rules that no event can reach")
    left_out: dict[str, int] = Field(description="rules that are not wanted, by the reason")


class PackImported(PackPut):
    """A version that was imported."""

    shadowed: int = Field(description="rules that are tried in shadow first")
    at_once: int = Field(description="changed rules that could not be, and alert at once")


class RuleFilter(WireModel):
    """What rules must be like: one of the values of each criterion that has any."""

    tags: list[str] = Field([], max_length=MOST_NAMED, examples=[["attack.t1059"]],
                            description="with all below them")  # fmt: skip
    levels: list[str] = Field([], max_length=MOST_NAMED, description="levels")
    statuses: list[str] = Field([], max_length=MOST_NAMED, description="Sigma's status")
    products: list[str] = Field([], max_length=MOST_NAMED, description="of the log source")
    packs: list[str] = Field([], max_length=MOST_NAMED, description="names of packs, or bundled")


class SwitchPlan(WireModel):
    """A change of many rules, to be counted first. Name them, or say what they are like."""

    act: BulkVerb = Field(description="what is to be done to them")
    rules: list[str] = Field([], max_length=MOST_NAMED, description="ids or names")
    filter: RuleFilter = Field(RuleFilter(), description="and all that are like this")


class CountedRule(WireModel):
    """A rule that would change."""

    id: str = Field(description="never changes")
    name: str = Field(description="short name; empty where it has none")
    title: str = Field(description="what it is about")
    level: str = Field(description="informational, low, medium, high or critical")


class SwitchCount(WireModel):
    """What a change of many rules would do; nothing is done yet."""

    rules: int = Field(description="rules that would change: what the act has to name")
    unchanged: int = Field(description="rules that are so already")
    items: list[CountedRule] = Field(description="those that would change")


class SwitchAct(SwitchPlan):
    """Does what was counted."""

    count: int = Field(ge=0, description="how many rules: the number that the preview named")
    days: int = Field(7, ge=1, le=MOST_DAYS, description="how long they are tried (shadow)")
    reason: str = _WHY


class SwitchDone(WireModel):
    """Rules that were changed."""

    rules: int = Field(description="how many")
    pack: str | None = Field(description="hash of the rule pack in force; null: nothing changed")
    visible: str = Field(description="when it takes effect")


class ShadowItem(WireModel):
    """A rule in shadow, and what it would have alerted since."""

    rule_id: str = Field(description="its id there")
    name: str = Field(description="short name; empty where it has none")
    title: str = Field(description="what it is about")
    changes: str = Field(description="the rule whose changed text this is; empty: itself")
    since: datetime = Field(description="since when it is tried, UTC")
    until: datetime = Field(description="until when, UTC")
    over: bool = Field(description="whether that time is over: promote or drop it")
    findings: int | None = Field(description="since then; null: its file is gone")
    alerts: int | None = Field(description="that it would have raised; null: too many to fold")
    per_day: float | None = Field(description="of those a day")
    busiest: str = Field(description="entities with most of them")
    muted: bool = Field(description="whether it would raise none by itself, also when live")
    by: str = Field(description="who put it there")
    reason: str = Field(description="why, as they said")


class ShadowList(WireModel):
    """The rules in shadow, by id."""

    items: list[ShadowItem] = Field(description="each with what it found")
