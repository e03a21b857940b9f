"""Whoever keeps a state file names a damaged one, with what is wrong and the remedy."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from alerts.anomaly.drift_notes import drift_file
from alerts.anomaly.store import ModelStore
from alerts.backtest import result as backtest_result
from alerts.backtest.run import stored_backtests
from alerts.compiler.indicator_lists import ListStore
from alerts.compiler.spark_rule_files import sees_of
from alerts.coverage.state import CoverageState
from alerts.delivery.held_back import left_out
from alerts.delivery.publish_offset import read_publish_offset
from alerts.feeds.feed_state import feed_findings
from alerts.preliminary.place import place_file
from alerts.reattribution.dirty_addresses import doubts_mark_file
from alerts.rollout.pack_versions import PackVersions
from alerts.rulebook.rule_versions import rule_versions
from alerts.rulepack.rule_pack import PackStore
from alerts.rulepack.shadow_marks import ShadowMarks
from alerts.spark_rules.disabled_rules import DisabledRules
from api.services.console.saved_views import SavedViews
from api.services.searches.saved_queries import QueryStore
from enrich.dhcp import state_layout
from enrich.rollup.unpublished import unpublished_hours
from headgate.as_code.apply import unfinished_apply
from infra.checkpoint.failed_batch import require_no_failure
from infra.config.settings import Settings, load
from infra.delta.retention import retention_applied
from infra.delta.table_lock import at_home
from infra.errors import Fatal
from infra.maintenance.retention_holds import leave
from infra.runtime.alarm import Alarm
from infra.runtime.report_failures import left_failures
from infra.storage.state_file import StateFile
from infra.streaming.audit_chain import head_file
from infra.streaming.rate_controller import Learned
from infra.streaming.rate_estimates import read_estimates
from ingest.completeness.ledger_state import LedgerCheckState
from ingest.listen.listener_status import listener_findings
from ingest.pipeline import backfill
from ingest.pipeline.ingest_job import Cap
from ingest.quality.outcome_store import QualityState
from ingest.reparse.reparse import reparse_progress_file
from reporting.cli.due_reports import make_due
from reporting.document.making_progress import MakingProgress
from reporting.erasure.request import progress_file
from tests.infra.storage.test_state_file import NOON

ROOT = Path(__file__).parents[3]


Read = Callable[[Settings], Any]


def settings_of(home: Path) -> Settings:
    feed = {"name": "f", "url": "https://a.example/taxii2/", "collection": "c", "list": "l"}
    return load(home=home, intelligence={"taxii": [feed]})


def layout(settings: Settings) -> Any:
    offsets = settings.home / "spark" / "offsets"
    offsets.mkdir(parents=True, exist_ok=True)
    (offsets / "0").touch()
    return state_layout.read_layout(settings.home)


READERS: dict[str, Read] = {
    "alerts/anomaly/drift_notes.py": lambda s: drift_file(s).read(),
    "alerts/anomaly/store.py": lambda s: ModelStore(s.home).current(),
    "alerts/backtest/result.py": lambda s: backtest_result.loaded(s.home),
    "alerts/backtest/run.py": stored_backtests,
    "alerts/compiler/indicator_lists.py": lambda s: ListStore(s.home).lists(),
    "alerts/compiler/spark_rule_files.py": lambda s: sees_of(s.home / "a.py"),
    "alerts/coverage/state.py": lambda s: CoverageState.load(s.home),
    "alerts/delivery/held_back.py": left_out,
    "alerts/delivery/publish_offset.py": lambda s: read_publish_offset(s, s.home),
    "alerts/feeds/feed_state.py": lambda s: list(feed_findings(s)),
    "alerts/preliminary/place.py": lambda s: place_file(s).read(),
    "alerts/reattribution/dirty_addresses.py": lambda s: doubts_mark_file(s.home).read(),
    "alerts/rollout/pack_versions.py": lambda s: PackVersions(s).of(s.home / "pack"),
    "alerts/rulebook/rule_versions.py": lambda s: rule_versions(s, "a", None),
    "alerts/rulepack/rule_pack.py": lambda s: PackStore(s.home).disabled(),
    "alerts/rulepack/shadow_marks.py": lambda s: ShadowMarks(s.home).all(),
    "alerts/spark_rules/disabled_rules.py": lambda s: DisabledRules(s.home).all(),
    "api/services/console/saved_views.py": lambda s: SavedViews(s).views_of("ann"),
    "api/services/searches/saved_queries.py": lambda s: QueryStore(s).listed(),
    "enrich/dhcp/state_layout.py": layout,
    "enrich/rollup/unpublished.py": lambda s: list(unpublished_hours(s)),
    "headgate/as_code/apply.py": unfinished_apply,
    "infra/checkpoint/failed_batch.py": lambda s: require_no_failure(s.home),
    "infra/delta/retention.py": lambda s: retention_applied(s.home),
    "infra/delta/table_lock.py": lambda s: at_home(s, "silver.event"),
    "infra/maintenance/retention_holds.py": lambda s: leave(s, 0, []),
    "infra/runtime/alarm.py": lambda s: Alarm(s, tuple)._stuck(0.0),
    "infra/runtime/report_failures.py": lambda s: left_failures(s, print),
    "infra/streaming/audit_chain.py": lambda s: head_file(s.home).read(),
    "infra/streaming/rate_estimates.py": lambda s: read_estimates(s.home, Learned()),
    "ingest/completeness/ledger_state.py": lambda s: LedgerCheckState.load(s.home),
    "ingest/listen/listener_status.py": lambda s: list(listener_findings(s)),
    "ingest/pipeline/backfill.py": lambda s: backfill._Mark(s.home / "mark.json"),
    "ingest/pipeline/ingest_job.py": Cap,
    "ingest/quality/outcome_store.py": lambda s: QualityState.load(s.home),
    "ingest/reparse/reparse.py": lambda s: reparse_progress_file(s.home).read(),
    "reporting/cli/due_reports.py": lambda s: make_due(s, NOON),
    "reporting/document/making_progress.py": lambda s: MakingProgress(s, "daily", 1, print),
    "reporting/erasure/request.py": lambda s: progress_file(s.home / "e.json").read(),
}
"""How each module reads its file: it raises what is wrong, says it, or returns it."""

AT = {
    "alerts/backtest/run.py": "backtests/b/run.json",
    "enrich/rollup/unpublished.py": "checkpoints/rollup/untold/a.telling",
}
"""Files that are looked for in a folder."""

DAMAGE = {
    "nothing": b"",
    "cut short": b'{"version": 1, "at": "2026-11-2',
    "no JSON": b"\x00\xff\x17garbage",
    "another type": b'"a text"',
    "a list of lists": b"[[[1]]]",
    "too deep": b"[" * 100_000,
    "of another release": b'{"of a later release": {"format": [99]}}',
}
# What may lie in `result.json` is for people to read.
ANY_OBJECT = {"alerts/backtest/result.py"}


def test_every_keeper_of_a_state_file_is_tried() -> None:
    keepers = {
        str(path.relative_to(ROOT))
        for layer in ("alerts", "api", "enrich", "headgate", "infra", "ingest", "reporting")
        for path in (ROOT / layer).rglob("*.py")
        if re.search(r"\bStateFile\($|\bStateFile\([^)]", path.read_text(), re.MULTILINE)
    }
    assert keepers - {"infra/storage/state_file.py"} == set(READERS)


@pytest.mark.parametrize("keeper", READERS)
def test_a_damaged_state_file_is_named_with_what_is_wrong_and_the_remedy(
    keeper: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    settings = settings_of(tmp_path)
    made: list[StateFile[Any]] = []
    begin = StateFile.__init__

    def noted(self: StateFile[Any], *args: Any, **options: Any) -> None:
        begin(self, *args, **options)
        made.append(self)

    monkeypatch.setattr(StateFile, "__init__", noted)
    if keeper not in AT:
        # Where it looks is asked of itself, not written down here once more.
        with suppress(FileNotFoundError):
            READERS[keeper](settings)
    path = Path(str(made[0].path)) if made else tmp_path / AT[keeper]
    path.parent.mkdir(parents=True, exist_ok=True)
    for name, content in DAMAGE.items():
        if name == "of another release" and keeper in ANY_OBJECT:
            continue
        path.write_bytes(content)
        capfd.readouterr()
        try:
            text = str(READERS[keeper](settings))
        except Fatal as refused:
            text = str(refused)
        text += "".join(capfd.readouterr())
        assert f"{path} is damaged (" in text, name
        (reason, remedy) = text.split(f"{path} is damaged (", 1)[1].split("); ", 1)
        assert reason, name
        assert len(remedy) > 10, name
        assert "Traceback" not in text
