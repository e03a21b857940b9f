"""A proposed filter as a file of Sigma: written, compiled with its rule, and put in force."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import yaml

from alerts.compiler.compiler import Compiled
from alerts.rulebook.new_rule_files import folder_for_rules, new_rule_file
from alerts.rulebook.rule_draft import sigma_escaped
from alerts.rulebook.rule_store import recompile
from alerts.rulebook.rule_switch import compiled_rules
from alerts.rulebook.rule_tests import check_rules
from alerts.rulepack.rule_pack import Rule
from alerts.tuning.filters import Condition
from infra.config.bounded_yaml import yaml_documents
from infra.config.settings import Settings
from infra.errors import Usage


def log_source_of(path: Path, rule_id: str) -> dict[str, Any]:
    """The log source that a rule's file names; raises `Usage` where it has none."""
    for document in yaml_documents(path.read_text("utf-8")):
        if isinstance(document, dict) and str(document.get("id")) == rule_id:
            source = document.get("logsource")
            if isinstance(source, dict):
                return dict(source)
    raise Usage(f"{path}: rule {rule_id} names no log source there, which a filter needs")


def filter_text(
    rule: Rule,
    log_source: Mapping[str, Any],
    conditions: Sequence[Condition],
    *,
    owner: str,
    reason: str,
    expires: date,
) -> str:
    """The file: values match literally, whatever wildcards or control characters they hold."""
    values_of = _asked(conditions)
    named = f"{rule.id} {sorted(values_of.items())} {expires.isoformat()}"
    document = {
        "title": f"Filter of {rule.title}",
        # From what it says: the same filter written twice is refused, not doubled.
        "id": str(uuid5(NAMESPACE_URL, f"headgate:filter:{named}")),
        "description": reason,
        "author": owner,
        "date": datetime.now(UTC).date().isoformat(),
        "logsource": dict(log_source),
        "filter": {"rules": [rule.id], **_left_out(values_of)},
        "headgate": {"expires": expires.isoformat()},
    }
    return str(yaml.safe_dump(document, sort_keys=False, width=2**20))


def text_of_conditions(conditions: Sequence[Condition]) -> str:
    """What a filter of these leaves out, as `KeptFilter.text` has it."""
    left_out = _left_out(_asked(conditions))
    return str(yaml.safe_dump(left_out, sort_keys=False, width=2**20)).rstrip()


def _asked(conditions: Sequence[Condition]) -> dict[str, str]:
    return {_key(condition): _value(condition) for condition in conditions}


def _left_out(asked: dict[str, str]) -> dict[str, Any]:
    return {"noise": asked, "condition": "not noise"}


def _key(condition: Condition) -> str:
    return condition.field if condition.op == "eq" else f"{condition.field}|{condition.op}"


def _value(condition: Condition) -> str:
    return condition.value if condition.op == "cidr" else sigma_escaped(condition.value)


def write_filter(settings: Settings, rule_id: str, name: str, text: str) -> tuple[Path, str]:
    """Keep the filter in the first rule folder and put it in force: its file, the pack's hash.

    Raises `Usage`, and leaves nothing behind, where it does not load or the rule's own tests
    would fail by it.
    """
    with new_rule_file(folder_for_rules(settings, "filter"), name, text) as path:
        _require_good(compiled_rules(settings), path, rule_id)
    return path, recompile(settings).pack.hash


def _require_good(compiled: Compiled, path: Path, rule_id: str) -> None:
    for refused in compiled.refused:
        if refused.path == str(path):
            raise Usage(f"the filter is refused: {refused.reason}; {refused.remedy}")
    failed = [o for o in check_rules(compiled, {rule_id}) if not o.passed]
    if failed:
        raise Usage(f"with the filter the rule fails its own test {failed[0].number}")
