"""Rules as who is limited to tenants reads them: what each is, without what it says of others."""

from __future__ import annotations

from typing import Never

from alerts.rulepack.locations import is_bundled
from api.services.reader import Reader
from api.services.rules.desk import RuleDesk
from api.tenant_views import refused_to_tenants
from api.wire import rules as wire
from infra.errors import NoSuch

_STATES = ("on", "off", "shadow", "set aside", "untrained")
_ALERTED = "SELECT DISTINCT rule_id FROM gold.alert"


class TenantRules:
    """The list and the page of rules; all else of `RuleDesk` is refused.

    Those that come with Headgate are there with their text. What a team writes may be about one of
    its tenants: of its own rules those alone are there that made an alert of these tenants, which
    shows their titles anyway, without text, runbook and known noise. Why a rule is off, and whether
    its sources are silent, is everybody's, and left out.
    """

    def __init__(self, desk: RuleDesk, reader: Reader) -> None:
        self._desk = desk
        self._reader = reader

    def __getattr__(self, name: str) -> Never:
        raise refused_to_tenants("all of rules but their list and their pages")

    def all(self) -> wire.RuleList:
        """The rules, and no files that are refused."""
        alerted = self._alerted()
        items = [
            _plain(item)
            for item in self._desk.all().items
            if item.id in alerted or is_bundled(self._desk.source(item.id).path)
        ]
        return wire.RuleList(items=items, refused=[])

    def one(self, rule: str) -> wire.RuleDetail:
        """A rule by id or name; raises `NoSuch`, for one that is not to be seen, too."""
        try:
            source = self._desk.source(rule)
        except NoSuch:
            raise _no_rule(rule) from None
        detail = self._desk.one(source.rule.id)
        if is_bundled(source.path):
            return detail.model_copy(update={"rule": _plain(detail.rule), "path": source.path.name})
        if detail.rule.id not in self._alerted():
            raise _no_rule(rule)
        written = {"text": "", "path": "", "version": "", "runbook": "", "falsepositives": []}
        return detail.model_copy(update={"rule": _plain(detail.rule)} | written)

    def _alerted(self) -> set[str]:
        """Ids of the rules that made an alert of these tenants."""
        return {str(row["rule_id"]) for row in self._reader.rows(_ALERTED, needs=("gold.alert",))}


def _no_rule(rule: str) -> NoSuch:
    # The same for all: the desk's own sentence names the ids that are like it.
    return NoSuch(f"no rule '{rule}'; GET /api/v1/rules lists them")


def _plain(item: wire.RuleItem) -> wire.RuleItem:
    state = next((known for known in _STATES if item.state.startswith(known)), "off")
    return item.model_copy(update={"state": state, "blindness": ""})
