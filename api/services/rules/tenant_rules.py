"""Rules as who is limited to tenants reads them: what each is, without what it says of others."""

from __future__ import annotations

from typing import Never

from alerts.compiler.compiler import RuleSource
from alerts.compiler.model_rule_files import ModelSource
from alerts.domain.short_ids import id_begun_by
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
        there = self._there()
        items = [_plain(item) for item in self._desk.all().items if item.id in there]
        return wire.RuleList(items=items, refused=[])

    def one(self, rule: str) -> wire.RuleDetail:
        """A rule by id or name, or how its id begins; raises `NoSuch`, for one that is not to be
        seen, too."""
        there = self._there()
        # Looked for among these alone: the desk names ids that are alike, and files it refuses.
        names = (rule_id for rule_id, source in there.items() if source.rule.name == rule)
        rule_id = id_begun_by("rule", next(names, rule), there)
        if rule_id is None:
            raise NoSuch(f"no rule '{rule}'; GET /api/v1/rules lists them")
        source, detail = there[rule_id], self._desk.one(rule_id)
        plain = _plain(detail.rule)
        if is_bundled(source.path):
            return detail.model_copy(update={"rule": plain, "path": source.path.name})
        written = {"text": "", "path": "", "version": "", "runbook": "", "falsepositives": []}
        return detail.model_copy(update={"rule": plain} | written)

    def _there(self) -> dict[str, RuleSource | ModelSource]:
        """The rules that are to be seen, by id."""
        alerted = self._reader.rows(_ALERTED, needs=("gold.alert",))
        made = {str(row["rule_id"]) for row in alerted}
        return {
            rule_id: source
            for rule_id, source in self._desk.every().items()
            if rule_id in made or is_bundled(source.path)
        }


def _plain(item: wire.RuleItem) -> wire.RuleItem:
    state = next((known for known in _STATES if item.state.startswith(known)), "off")
    return item.model_copy(update={"state": state, "blindness": ""})
