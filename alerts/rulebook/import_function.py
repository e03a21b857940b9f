"""`headgate rules import FILE.py`: a person lets a function in, which then runs in the driver."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from alerts.compiler.compiler import RuleSource, compile_rules
from alerts.compiler.spark_rule_files import FUNCTIONS, imported, inputs_file
from alerts.rulebook.rule_store import recompile
from alerts.rulebook.rule_tests import check_rules
from alerts.rulepack.locations import rule_folders, store_folder
from alerts.rulepack.rule_pack import PackStore, Query
from alerts.spark_rules.disabled_rules import DisabledRules
from alerts.spark_rules.rule import QueryRule
from alerts.spark_rules.rule_tests import require_fit, running
from infra.config.settings import Settings
from infra.errors import Usage
from infra.storage.atomic_files import write_whole
from infra.streaming.outbox import note_audit


@dataclass(frozen=True)
class _Imported:
    """A function that was let in: its rule, how many tests it passed, and the pack now in force."""

    query: Query
    tests: int
    pack: str


def import_function(settings: Settings, file: Path) -> _Imported:
    """Check a rule's Python file, run its tests, keep its source and put it in force.

    A rule of the same id that was imported before is replaced. Raises `Usage`, and changes
    nothing, when the rule is refused, fails its tests, or has the id of another rule.
    """
    source = _read(settings, file)
    query = source.rule
    assert isinstance(query, Query)
    with running(settings) as spark:
        require_fit(spark, [query])
        sees = QueryRule(query).sees(spark)
        # Compiled alone: its tests must not pass by the help of other rules.
        outcomes = check_rules(compile_rules([file]), spark=lambda: spark)
    failed = [outcome for outcome in outcomes if not outcome.passed]
    if failed:
        first = failed[0]
        raise Usage(f"{file}: test {first.number} of {len(outcomes)} fails: it {first.detail}")
    store = PackStore(store_folder(settings))
    kept = store.folder / FUNCTIONS / f"{query.id}.py"
    inputs_file(kept).write(list(sees))
    # The source goes last: a function is in force from the moment its file is there.
    write_whole(kept, file.read_text("utf-8"))
    # A version that was set aside before gets another chance when a person imports it again.
    DisabledRules(store.folder).lift(query.id)
    pack = recompile(settings).pack.hash
    detail = {"file": file.name, "version": query.version, "pack": pack}
    note_audit(settings.home.absolute() / "spool", "rule.import", query.id, detail)
    return _Imported(query, len(outcomes), pack)


def _read(settings: Settings, file: Path) -> RuleSource:
    compiled = compile_rules([file], levels=settings.alerts.levels)
    for refused in compiled.refused:
        raise Usage(f"{file} is refused: {refused.reason}; {refused.remedy}")
    (source,) = compiled.sources.values()
    store = store_folder(settings)
    others = compile_rules(rule_folders(settings), store=store).sources
    other = others.get(source.rule.id)
    if other is not None and other.path not in imported(store):
        raise Usage(f"{file}: its id is taken by {other.path}; give it a new uuid")
    return source
