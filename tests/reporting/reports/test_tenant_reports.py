"""A report of one tenant is what it would be if nobody else had a row, and says what it lacks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pytest

from infra.config.settings import Settings, load
from infra.delta.catalog import catalog
from infra.errors import Retryable, Usage
from ingest.tables import EVENT
from reporting.cli.making import make_report
from reporting.cli.reader import open_pinned
from reporting.document.archive import in_form, keep
from reporting.document.content import Report
from reporting.interval import Interval, parse_interval
from reporting.reports import reports
from tests.alerts.lifecycle.test_alert_fold import NOON
from tests.api.tenant_desk import IP, MAC, TenantDesk
from tests.api.test_tenants import NOBODY, NOW, OTHER, OWN
from tests.full import rest_full
from tests.headgate.as_code.delta_by_hand import append_rows

OPEN = [name for name, report in reports().items() if report.of_tenant is not None]
CLOSED = sorted({*reports()} - {*OPEN})
SPAN = parse_interval(f"{NOON:%Y-%m-%d}/{NOON + timedelta(days=2):%Y-%m-%d}")
"""Of their alerts and what is behind these."""
LATER = parse_interval(f"{NOW:%Y-%m-%d}/{NOW + timedelta(days=1):%Y-%m-%d}")
"""Of one row of each in every table."""
MADE = NOW + timedelta(days=30)
BEAT = NOW + timedelta(days=3)
"""When all logs had last said that they are complete: later than anything of any tenant."""


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TenantDesk]:
    running = TenantDesk(tmp_path_factory.mktemp("tenant-reports"))
    lake = running.settings.lake_root
    assert isinstance(lake, Path)
    beat = {"source": "_heartbeat", "event_uid": "beat", "time": BEAT, "received_at": BEAT}
    append_rows(lake, EVENT, [beat])
    yield running
    running.close()


@pytest.fixture(scope="module")
def alone(desk: TenantDesk, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """The same lake without a row that names somebody else: what acme's own would have."""
    home = tmp_path_factory.mktemp("alone")
    for table in catalog().values():
        files = f"{desk.settings.lake_root}/{table.path}/part-*.parquet"
        with duckdb.connect() as connection:
            rows = connection.sql(f"SELECT * FROM read_parquet('{files}')").to_arrow_table()
        kept = [row for row in rows.to_pylist() if not _of_others(row)]
        append_rows(home / "lake", table, kept)
    return load(home=home)


def _of_others(row: dict[str, Any]) -> bool:
    return any(name in str(row) for name in (OTHER, NOBODY, "globex"))


def subject_of(desk: TenantDesk, name: str, tenant: str = "acme") -> str:
    return {"device": IP, "incident": desk.ids[tenant]}.get(name, "")


# Several tests ask of the same report; the module's lake stays as it is.
@cache
def made(
    desk: TenantDesk, name: str, tenant: str | None = "acme", interval: Interval = SPAN
) -> Report:
    return make_report(
        desk.settings, name, interval, subject_of(desk, name), at=MADE, tenant=tenant
    )


@pytest.mark.parametrize("span", rest_full(1, [LATER, SPAN]), ids=["rows", "alerts"])
@pytest.mark.parametrize("name", rest_full(1, OPEN))
def test_it_is_what_it_would_be_if_nobody_else_had_a_row(
    desk: TenantDesk, alone: Settings, name: str, span: Interval
) -> None:
    shared = json.loads(in_form(made(desk, name, interval=span), "json"))
    apart = make_report(alone, name, span, subject_of(desk, name), at=MADE)
    own = json.loads(in_form(apart, "json"))
    assert shared["figures"] == own["figures"]
    assert shared["data"]
    # Of some tables a tenant's has less: what is known of the whole platform alone.
    assert shared["data"] == {key: own["data"][key] for key in shared["data"]}
    for key in ("report", "title", "subject", "arrived_until", "late_events", "notes"):
        assert shared[key] == own[key], key
    assert shared["arrived_until"] == BEAT.isoformat(), "a heartbeat is everybody's"
    assert shared["tenant"] == "acme"
    assert own["tenant"] is None
    assert shared["lead"][0].startswith("Made for tenant acme: counted over that tenant's rows")
    assert shared["lead"][1:] == own["lead"]


@pytest.mark.full
@pytest.mark.parametrize("name", OPEN)
def test_nothing_of_others_stands_in_any_form(desk: TenantDesk, name: str) -> None:
    report = made(desk, name)
    for form in ("html", "json"):
        text = in_form(report, form).decode()
        assert "acme" in text
        for word in (OTHER, NOBODY, "globex", desk.ids["globex"][:8], desk.more["globex"][:8]):
            assert word not in text, (form, word)
    whole = in_form(made(desk, name, tenant=None), "json").decode()
    # What this is about is there to be seen.
    assert OTHER in whole or name in ("incident", "monthly")


@pytest.mark.parametrize(
    ("name", "key"), rest_full(1, [("daily", "entities"), ("weekly", "noisiest")])
)
def test_one_address_is_another_device_at_each_tenant(
    desk: TenantDesk, name: str, key: str
) -> None:
    document = json.loads(in_form(made(desk, name, tenant=None), "json"))
    shown = ("entity_value", "hostname", "tenant", "alerts")
    assert {tuple(row[column] for column in shown) for row in document["data"][key]} == {
        (MAC, OWN, "acme", 2), (MAC, OTHER, "globex", 2), (MAC, NOBODY, None, 2),
    }  # fmt: skip


@pytest.mark.full
def test_what_is_of_the_whole_platform_is_left_out_and_that_is_said(desk: TenantDesk) -> None:
    for name, key, title in (
        ("daily", "quality", "Data quality"),
        ("weekly", "silent_sources", "What nobody could see"),
    ):
        report, whole = made(desk, name), made(desk, name, tenant=None)
        assert key not in {block.key for s in report.sections for block in s.blocks}  # type: ignore[union-attr]
        assert title not in [section.title for section in report.sections]
        assert title in [section.title for section in whole.sections]
        assert "known of the whole platform alone, and are not in here" in report.lead[0]
        assert not any("Made for tenant" in sentence for sentence in whole.lead)
    basis = in_form(made(desk, "monthly"), "json").decode()
    assert "No loss of log records is known" not in basis


@pytest.mark.full
def test_what_is_a_tenants_by_its_account_is_said_to_lack_its_records(desk: TenantDesk) -> None:
    account = {"tz": "UTC", "accounts": {"111111111111": "acme"}}
    sources = load(home=desk.settings.home, tenants=["acme"], sources={"cloudtrail": account})
    settings = desk.settings.model_copy(update={"sources": sources.sources})
    for tenant, lacks in (("acme", True), ("globex", False)):
        lead = make_report(settings, "daily", SPAN, at=MADE, tenant=tenant).lead[0]
        assert ("Events of cloudtrail that are this tenant's by their" in lead) == lacks


def test_a_tenants_records_are_accounted_for_without_the_others(desk: TenantDesk) -> None:
    rows = made(desk, "daily").data()["completeness"][1]
    assert sum(row["received"] for row in rows) == 1


def test_a_dossier_of_anothers_incident_is_of_none(desk: TenantDesk) -> None:
    for tenant in ("globex", None):
        with pytest.raises(Usage, match="there is no such alert"):
            make_report(desk.settings, "incident", SPAN, desk.ids[tenant], at=MADE, tenant="acme")


@pytest.mark.parametrize("name", CLOSED)
def test_what_covers_the_whole_platform_is_made_for_no_tenant(desk: TenantDesk, name: str) -> None:
    with pytest.raises(Usage, match=f"report {name}: it covers the whole platform and cannot be"):
        make_report(desk.settings, name, SPAN, "x" if name == "query" else "", tenant="acme")


def test_a_tenant_that_the_settings_do_not_list_is_refused(desk: TenantDesk) -> None:
    for slip in ("acmee", "", "ACME", "acme' OR '1'='1", "../acme"):
        with pytest.raises(Usage, match=r"--tenant: no tenant .*; there are acme, globex"):
            make_report(desk.settings, "daily", SPAN, tenant=slip)
    scheduled = [{"report": "daily", "every": "day", "tenant": "acmee"}]
    with pytest.raises(Usage, match=r"reports\.scheduled: no tenant 'acmee'"):
        load(home=desk.settings.home, tenants=["acme"], reports={"scheduled": scheduled})


@pytest.mark.parametrize(("report", "of"), [("globex", "tenant 'globex'"), (None, "all tenants")])
def test_a_report_is_not_told_to_another_tenants_webhook(
    desk: TenantDesk, report: str | None, of: str
) -> None:
    def settings(hook: str | None, whose: str | None) -> Settings:
        wanted = {"report": "daily", "every": "day", "webhook": "hook", "tenant": whose}
        given = {"name": "hook", "url": "https://h.example/", "secret": "x", "tenant": hook}
        return load(home=desk.settings.home, tenants=["acme", "globex"], webhooks=[given],
                    reports={"scheduled": [wanted]})  # fmt: skip

    said = rf"report 'daily' of {of} would go to webhook 'hook' of tenant 'acme'"
    with pytest.raises(Usage, match=said):
        settings("acme", report)
    assert settings("acme", "acme").reports.scheduled[0].webhook == "hook"
    assert settings(None, report).reports.scheduled[0].tenant == report, "one of the operator's own"


@pytest.mark.parametrize("table", rest_full(3, sorted(catalog())))
def test_a_tenants_report_has_no_row_of_others_to_count(desk: TenantDesk, table: str) -> None:
    connection, _ = open_pinned(desk.settings, [table], "acme")
    try:
        rows = connection.execute(f"SELECT * FROM {table}").fetchall()
    except duckdb.CatalogException:
        return  # it does not tell whose its rows are, and is not there
    assert not [row for row in rows if _of_others({"row": row})]
    assert any(OWN in str(row) for row in rows), table


def test_a_lake_of_which_a_table_is_missing_is_told_as_such(tmp_path: Path) -> None:
    settings = load(home=tmp_path, tenants=["acme"])
    append_rows(tmp_path / "lake", EVENT, [])
    with pytest.raises(Retryable, match=r"not in the lake: .*gold\.alert"):
        make_report(settings, "weekly", SPAN, tenant="acme")


@pytest.mark.full
def test_each_tenants_files_are_their_own(desk: TenantDesk, tmp_path: Path) -> None:
    settings = load(home=tmp_path, tenants=["acme", "globex"])
    names = {
        path.name
        for tenant in ("acme", "globex", None)
        for path in keep(settings, made(desk, "daily", tenant), ("html",))
    }
    assert len(names) == 6
    assert sum(name.startswith("tenant-acme.daily-") for name in names) == 2
