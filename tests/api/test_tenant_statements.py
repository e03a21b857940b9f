"""Statements of two tenants over one lake: leases, witnesses and views, each with their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from api.auth import Caller, Limits
from api.key_limits import readable_tables, row_limits
from api.sql.runner import Answer, Engine, Failed, Refused, Statements
from tests.api.tenant_desk import NAMES, TenantDesk, site_part
from tests.api.test_tenants import NOBODY

ENGINES = ["duckdb", pytest.param("spark", marks=pytest.mark.full)]
OWN_ROWS = {
    "SELECT scope, hostname FROM silver.dhcp_segment WHERE kind = 'lease'": ["{part}", "{name}"],
    "SELECT scope, hostname FROM silver.dhcp_session": ["{part}", "{name}"],
    "SELECT DISTINCT scope, hostname FROM silver.leased_event": ["{part}", "{name}"],
    "SELECT kind, scope, user_name FROM silver.witness": ["ssh", "{part}", "{name}"],
    "SELECT user_name, device_name FROM gold.device_user": ["{name}", "{name}"],
    "SELECT holder.scope, holder.hostname FROM gold.attribution WHERE holder.mac IS NOT NULL":
        ["{part}", "{name}"],
    "SELECT holder.hostname FROM gold.attribution_current WHERE holder.mac IS NOT NULL":
        ["{name}"],
    "SELECT comment FROM gold.alert_action": ["note of {name}"],
    "SELECT DISTINCT tenant_uid FROM gold.alert_current": ["{tenant}"],
    "SELECT user_name FROM silver.authentication WHERE source = 'sshd' AND event_uid LIKE '%login'":
        ["{name}"],
}  # fmt: skip
"""What each tenant's statement gives: one row, with their own name in the place of the other's."""

HOSTILE = [
    "SELECT * FROM silver.dhcp_segment WHERE scope LIKE 'tenant-%' OR true",
    "SELECT * FROM silver.dhcp_segment a FULL OUTER JOIN silver.dhcp_segment b ON a.ip = b.ip",
    "SELECT b.* FROM gold.alert a RIGHT JOIN silver.dhcp_segment b ON false",
    "SELECT w.*, s.hostname FROM silver.witness w JOIN silver.dhcp_segment s ON s.ip = w.ip",
    "SELECT * FROM silver.leased_event l, gold.device_user d, silver.dhcp_session s",
    "SELECT * FROM gold.attribution a WHERE a.finding_id NOT IN (SELECT finding_id FROM "
    "gold.finding)",
    "SELECT (SELECT max(hostname) FROM silver.dhcp_session), (SELECT min(comment) FROM "
    "gold.alert_action)",
    "SELECT * FROM silver.events EXCEPT SELECT * FROM silver.event",
    "SELECT max(scope), min(hostname), collect_set(hostname) FROM silver.dhcp_segment",
    "SELECT lag(hostname) OVER (ORDER BY hostname DESC) FROM silver.dhcp_segment",
    "WITH dhcp_segment AS (SELECT * FROM silver.dhcp_segment) SELECT * FROM dhcp_segment",
    "WITH `limited gold.finding` AS (SELECT 'x' AS finding_id) SELECT * FROM gold.attribution",
    "WITH finding AS (SELECT finding_id FROM gold.attribution) SELECT * FROM gold.attribution",
    "SELECT * FROM `limited silver.dhcp_segment`",
    "SELECT * FROM `limited gold.finding`, gold.attribution",
    "SELECT * FROM `silver`.`dhcp_segment`",
    "SELECT * FROM `SILVER`.`Dhcp_Segment`",
    "SELECT * FROM lake_silver.dhcp_segment",
    "SELECT * FROM lake_silver.dhcp_segment_files",
    "SELECT * FROM spark_catalog.lake_silver.dhcp_segment",
    "SELECT * FROM spark_catalog.silver.witness",
    "SELECT * FROM IDENTIFIER('lake_gold.' || 'finding')",
    "SELECT * FROM information_schema.tables",
    "SELECT * FROM information_schema.views",
    "SELECT * FROM system.information_schema.columns",
    "SELECT * FROM duckdb_views()",
    "SELECT sql FROM sqlite_master",
    "SELECT * FROM query('SELECT * FROM silver.dhcp_segment')",
    "SELECT * FROM query_table('silver.dhcp_segment')",
    "SELECT * FROM read_parquet('silver/dhcp_segment/*.parquet')",
    "SELECT * FROM read_files('silver/dhcp_segment')",
    "SELECT * FROM delta_scan('silver/dhcp_segment')",
    "SELECT * FROM glob('**')",
    "SELECT * FROM parquet.`silver/dhcp_segment`",
    "SELECT * FROM delta.`silver/dhcp_segment`",
    "SELECT * FROM table_changes('silver.dhcp_segment', 0)",
    "SELECT * FROM silver.dhcp_segment VERSION AS OF 0",
    "SELECT * FROM silver.dhcp_segment TIMESTAMP AS OF '2026-11-25'",
    "SELECT _metadata.file_path FROM silver.dhcp_segment",
    "SELECT input_file_name(), hostname FROM silver.dhcp_segment",
    "SELECT view_definition FROM silver.witness",
    "DESCRIBE EXTENDED silver.witness",
    "SHOW CREATE TABLE silver.dhcp_segment",
    "CREATE VIEW silver.witness AS SELECT * FROM silver.dhcp_segment",
    "SELECT * FROM silver.dhcp_segment; SELECT * FROM lake_silver.dhcp_segment",
    "SELECT * FROM silver.dhcp_segment) UNION ALL (SELECT * FROM lake_silver.dhcp_segment",
    "SELECT * FROM silver.dhcp_segment WHERE CAST(hostname AS INT) = 1",
    "SELECT 1 / instr(hostname, 'acme') FROM silver.dhcp_segment",
    "SELECT raise_error(hostname) FROM silver.dhcp_segment",
    "SELECT * FROM ops.audit",
    "SELECT * FROM ops.case_act",
    "SELECT * FROM gold.suppression",
    "SELECT * FROM silver.user",
]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TenantDesk]:
    running = TenantDesk(tmp_path_factory.mktemp("tenant-statements"))
    yield running
    running.close()


@pytest.fixture(scope="module")
def statements(desk: TenantDesk) -> Iterator[Statements]:
    limits = {"spark_engine": True, "statement_seconds": 120.0}
    api = desk.settings.api.model_copy(update=limits)
    running = Statements(desk.settings.model_copy(update={"api": api}))
    yield running
    running.close()


def asked_by(statements: Statements, tenant: str, sql: str, engine: Engine) -> Answer:
    """As the API asks it for a key of that tenant."""
    key = Caller(tenant, "admin", limits=Limits(tenants=(tenant,)))
    return statements.run(sql, tables=readable_tables(key), rows=row_limits(key), engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("sql", OWN_ROWS)
def test_each_tenant_has_the_same_rows_of_their_own(
    statements: Statements, sql: str, engine: Engine
) -> None:
    # In turn, so that nothing of the one is left for the other.
    for tenant in ("acme", "globex", "acme"):
        words = {"part": site_part(tenant), "name": NAMES[tenant], "tenant": tenant}
        wanted = [text.format(**words) for text in OWN_ROWS[sql]]
        assert asked_by(statements, tenant, sql, engine).rows == [wanted]


@pytest.mark.parametrize("engine", ENGINES)
def test_two_tenants_of_one_key_are_shown_together_and_nobodys_are_not(
    statements: Statements, engine: Engine
) -> None:
    key = Caller("both", "viewer", limits=Limits(tenants=("acme", "globex")))
    sql = "SELECT DISTINCT hostname FROM silver.dhcp_segment WHERE kind = 'lease' ORDER BY hostname"
    limits: dict[str, Any] = {"tables": readable_tables(key), "rows": row_limits(key)}
    assert statements.run(sql, engine=engine, **limits).rows == [[NAMES["acme"]], [NAMES["globex"]]]
    whole = statements.run(sql, engine=engine).rows
    assert [NOBODY] in whole


def test_how_far_the_leases_are_known_is_everybodys(statements: Statements) -> None:
    sql = "SELECT scope, ip, mac, hostname FROM silver.dhcp_segment WHERE kind = 'heartbeat'"
    assert asked_by(statements, "acme", sql, "duckdb").rows == [[None] * 4]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("tenant", ["acme", "globex"])
def test_no_hostile_statement_shows_what_is_anothers(
    statements: Statements, tenant: str, engine: Engine
) -> None:
    others = [NAMES[name] for name in NAMES if name != tenant]
    others += [site_part("globex" if tenant == "acme" else "acme")]
    answered = 0
    for sql in HOSTILE:
        try:
            answer = asked_by(statements, tenant, sql, engine)
        except (Refused, Failed) as error:
            shown = str(error).replace(sql, "")
        else:
            answered += 1
            shown = str(answer.rows)
        assert not [word for word in others if word in shown], (sql, shown)
    # Some of them are honest questions, and are answered.
    assert answered > 10


@pytest.mark.full
def test_a_source_limit_beside_the_tenant_closes_views_and_what_has_no_source(
    statements: Statements,
) -> None:
    key = Caller("both", "viewer", limits=Limits(tenants=("acme",), sources=("sshd",)))
    tables = readable_tables(key)
    assert tables == ["bronze.record", "gold.finding", "ops.file", "silver.event"]
    for engine in ("duckdb", "spark"):
        limits: dict[str, Any] = {"tables": tables, "rows": row_limits(key), "engine": engine}
        sql = "SELECT DISTINCT source, tenant_uid FROM silver.event"
        assert statements.run(sql, **limits).rows == [["sshd", "acme"]]
        with pytest.raises(Refused, match="silver"):
            statements.run("SELECT * FROM silver.witness", **limits)
