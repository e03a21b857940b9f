"""A correlation with another count, window or group as a file: a copy in place of the rule.

A rule's text is never changed where it stands: a bundled one is renewed with each release. The copy
has an id of its own, which follows from what it says, and the rule that it replaces is off.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import yaml

from alerts.compiler.compiler import Compiled, RuleSource, compile_rules
from alerts.rulebook.new_rule_files import folder_for_rules, new_rule_file
from alerts.rulebook.rule_store import recompile
from alerts.rulebook.rule_switch import any_source, compiled_rules
from alerts.rulebook.rule_tests import check_rules
from alerts.rulepack.locations import rule_folders, store_folder
from alerts.rulepack.rule_pack import Correlation, PackStore
from alerts.tuning.thresholds import is_same, timespan_text
from infra.config.bounded_yaml import yaml_documents
from infra.config.settings import Settings
from infra.errors import Usage

Document = dict[str, Any]


@dataclass(frozen=True)
class ThresholdWish:
    """Who answers for a threshold, why, and who wrote it (`who`)."""

    owner: str
    reason: str
    who: str


def threshold_rule(settings: Settings, name: str) -> tuple[RuleSource, Correlation]:
    """A correlation with its file; raises `Usage` for a rule that has no threshold."""
    source = any_source(settings, name)
    if not isinstance(source, RuleSource) or not isinstance(source.rule, Correlation):
        raise Usage(
            f"rule '{name}' counts nothing, so it has no threshold; 'headgate rules tune' proposes "
            "filters for a rule over events"
        )
    if source.rule.type == "first_seen":
        raise Usage(f"rule '{name}' tells what is new, which is no number; try 'rules backtest'")
    return source, source.rule


def keep_threshold(
    settings: Settings,
    source: RuleSource,
    chosen: Correlation,
    threshold_wish: ThresholdWish,
    group_by: Sequence[str] | None = None,
) -> tuple[str, Path, str, int]:
    """Keep a choice as an own rule in place of the one it is of: the new rule's id, its file, the
    pack's hash, and how many tests were left out. Raises `Usage` for the rule as it is.

    `group_by`: as it was asked for; None where it is the rule's.
    """
    current = source.rule
    assert isinstance(current, Correlation)
    if is_same(chosen, current):
        raise Usage("that is the rule as it is; choose another number")
    changed = changed_document(
        rule_document(source),
        op=chosen.op,
        # A count that does not change stays as the file spells it.
        count=chosen.count if chosen.count != current.count else None,
        timespan_seconds=chosen.timespan_seconds,
        group_by=group_by,
    )
    owner, reason = threshold_wish.owner.strip(), threshold_wish.reason.strip()
    copy = own_copy(changed, chosen, owner=owner, reason=reason)
    path, pack, left_out = write_copy(settings, copy, chosen, threshold_wish.who, reason)
    return str(copy["id"]), path, pack, left_out


def rule_document(source: RuleSource) -> Document:
    """The document of a rule's file that says it; raises `Usage` where it is there no more."""
    for document in yaml_documents(source.path.read_text("utf-8")):
        if isinstance(document, dict) and str(document.get("id")) == source.rule.id:
            return document
    raise Usage(f"{source.path}: holds no rule {source.rule.id} any more")


def changed_document(
    document: Mapping[str, Any],
    *,
    op: str = "",
    count: float | None = None,
    timespan_seconds: int | None = None,
    group_by: Sequence[str] | None = None,
) -> Document:
    """A correlation's document with what is given in place of what it says; nothing else differs.

    `op`: the operator whose number `count` is.
    """
    correlation = dict(document["correlation"])
    if count is not None:
        correlation["condition"] = dict(correlation["condition"]) | {op: count}
    if timespan_seconds is not None:
        correlation["timespan"] = timespan_text(timespan_seconds)
    if group_by is not None:
        correlation["group-by"] = list(group_by)
    return {**document, "correlation": correlation}


def compiled_draft(settings: Settings, document: Mapping[str, Any]) -> Correlation:
    """The correlation that a document is beside the rules in force; `Usage` where it is refused.

    It takes the place of a rule with its id.
    """
    with TemporaryDirectory() as folder:
        path = Path(folder) / "draft.yml"
        path.write_text(_text(document), "utf-8")
        compiled = compile_rules(
            # In front: of two rules with one id the first is taken.
            [path, *rule_folders(settings)],
            levels=settings.alerts.levels,
            store=store_folder(settings),
        )
    _require_accepted(compiled, path)
    rule = compiled.sources[str(document["id"])].rule
    assert isinstance(rule, Correlation)
    return rule


def own_copy(
    document: Mapping[str, Any], chosen: Correlation, *, owner: str, reason: str
) -> Document:
    """The copy: who is behind it and why stand in its description, where it came from in `related`.

    `document` says the choice already.
    """
    rule_id = str(document["id"])
    named = (
        f"{rule_id} {chosen.op} {chosen.count} {chosen.timespan_seconds} {list(chosen.group_by)}"
    )
    name = {"name": f"{document['name']}_own"} if document.get("name") else {}
    description = str(document.get("description") or "").strip()
    related = [*(document.get("related") or ()), {"id": rule_id, "type": "derived"}]
    return {
        **document,
        **name,
        # The same choice written twice is refused, not doubled.
        "id": str(uuid5(NAMESPACE_URL, f"headgate:threshold:{named}")),
        "related": related,
        "description": f"{description} Threshold by {owner}: {reason}".strip(),
        "modified": datetime.now(UTC).date().isoformat(),
    }


def write_copy(
    settings: Settings, document: Document, chosen: Correlation, who: str, reason: str
) -> tuple[Path, str, int]:
    """Keep an `own_copy` in the first rule folder, in place of the rule that it derives from.

    Gives its file, the hash of the pack then in force, and how many of its tests were left out
    since they do not hold any more. Raises `Usage`, and leaves nothing behind, where it does not
    load or other correlations count the rule.
    """
    replaced = str(document["related"][-1]["id"])
    compiled = compiled_rules(settings)
    _require_uncounted(compiled, replaced)
    folder, name = folder_for_rules(settings, "rule"), f"threshold_{document['id'][:8]}.yml"
    with new_rule_file(folder, name, _text(document)) as path:
        left_out = _leave_failing_out(settings, path, document)
        compiled = compiled_rules(settings)
        _require_accepted(compiled, path)
        made = compiled.sources[document["id"]].rule
        if not isinstance(made, Correlation) or not is_same(made, chosen):
            raise Usage(f"{path}: would say something else than was chosen")
        # Before the copy is kept for good: where this fails it goes, so that never both are in
        # force.
        PackStore(store_folder(settings)).disable(replaced, who, f"replaced by {path}: {reason}")
    return path, recompile(settings).pack.hash, left_out


def _leave_failing_out(settings: Settings, path: Path, document: Document) -> int:
    """Take out the rule's tests that another threshold makes wrong; how many these were."""
    compiled = compiled_rules(settings)
    _require_accepted(compiled, path)
    failed = {
        ("match" if outcome.must_match else "no_match", outcome.number)
        for outcome in check_rules(compiled, {document["id"]})
        if not outcome.passed
    }
    if failed:
        own = dict(document["headgate"])
        own["tests"] = {
            kind: [test for number, test in enumerate(tests, 1) if (kind, number) not in failed]
            for kind, tests in own["tests"].items()
        }
        path.write_text(_text({**document, "headgate": own}), "utf-8")
    return len(failed)


def _require_uncounted(compiled: Compiled, rule_id: str) -> None:
    above = [
        source.rule.name or source.rule.id
        for source in compiled.sources.values()
        if isinstance(source.rule, Correlation) and rule_id in source.rule.rules
    ]
    if above:
        verb = "counts" if len(above) == 1 else "count"
        raise Usage(
            f"{', '.join(above)} {verb} what this rule finds, and would see nothing of a copy; "
            "write copies of all of them by hand"
        )


def _require_accepted(compiled: Compiled, path: Path) -> None:
    for refused in compiled.refused:
        if refused.path == str(path):
            raise Usage(f"the changed rule is refused: {refused.reason}; {refused.remedy}")


def _text(document: Mapping[str, Any]) -> str:
    # Wide, so that long texts are not wrapped anew, which reads as a change of all of them.
    return str(yaml.safe_dump(dict(document), sort_keys=False, width=2**20, allow_unicode=True))
