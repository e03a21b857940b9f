"""What a report asks of the lake, as it is made ready for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.delta.duckdb_views import definitions, needed
from reporting.reports import reports
from tests.api.story import ALERTS, A
from tests.reporting.memory_lake import story_in_memory


@pytest.mark.full
@pytest.mark.parametrize("name", [name for name in reports() if name != "query"])
def test_a_report_asks_only_the_tables_that_it_names(name: str, tmp_path: Path) -> None:
    listed = reports()[name]
    module, lake = listed.load(), story_in_memory()
    known = definitions(Path("/nowhere"))
    kept = {each.name for each in needed(module.TABLES, known)}
    for each in reversed(known):
        if each.name not in kept:
            kind = "VIEW" if each.folder is None else "TABLE"
            lake.connection.execute(f"DROP {kind} {each.name}")
    subjects = {"device": A, "incident": ALERTS[0]["alert_id"]}
    report = module.compose(lake.request(tmp_path, subject=subjects.get(name, "")))
    assert report.sections
