"""What drivers ask of the lake's tables, and who may ask what."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import flight

from api.flight.messages import FLIGHT_MESSAGES
from infra.delta.catalog import catalog, views
from tests.api.flight.flight_desk import FlightDesk

ROLES = ["metrics", "read", "viewer"]
LEAST = {name: "read" for name in FLIGHT_MESSAGES if name.startswith("CommandGet")} | {
    "CommandStatementQuery": "viewer",
    "CommandPreparedStatementQuery": "viewer",
}
STATEMENT = {
    "CommandStatementQuery": {"query": "SELECT 1 AS x"},
    "CommandPreparedStatementQuery": {"prepared_statement_handle": b"SELECT 1 AS x"},
}


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlightDesk]:
    running = FlightDesk(tmp_path_factory.mktemp("flight"))
    yield running
    running.close()


@pytest.mark.parametrize("name", [name for name in FLIGHT_MESSAGES if name.startswith("Command")])
def test_each_command_is_answered_from_its_least_role_on(desk: FlightDesk, name: str) -> None:
    for role in ROLES:
        token = desk.key(f"{name}-{role}", role)
        if ROLES.index(role) >= ROLES.index(LEAST[name]):
            assert desk.bare(name, token, **STATEMENT.get(name, {})).num_columns
        else:
            with pytest.raises(flight.FlightUnauthorizedError, match=f"this needs '{LEAST[name]}'"):
                desk.bare(name, token, **STATEMENT.get(name, {}))


@pytest.mark.parametrize("action", ["CreatePreparedStatement", "ClosePreparedStatement"])
def test_a_role_that_may_not_ask_may_not_prepare(desk: FlightDesk, action: str) -> None:
    token = desk.key(f"{action}-read", "read")
    with pytest.raises(flight.FlightUnauthorizedError, match="has role 'read'"):
        desk.action(action, b"", token)


def test_every_table_and_view_is_listed_with_its_columns(desk: FlightDesk) -> None:
    listed = desk.bare("CommandGetTables", include_schema=True).to_pylist()
    assert {f"{row['db_schema_name']}.{row['table_name']}" for row in listed} == {
        *catalog(),
        *views(),
    }
    (alert,) = [row for row in listed if row["table_name"] == "alert"]
    schema = pa.ipc.read_schema(pa.py_buffer(alert["table_schema"]))
    assert schema.names == [column.name for column in catalog()["gold.alert"].columns]
    meaning = schema.field("alert_id").metadata[b"ARROW:FLIGHT:SQL:REMARKS"].decode()
    assert meaning == catalog()["gold.alert"].columns[0].doc
    answered = desk.bare("CommandStatementQuery", query="SELECT * FROM gold.alert").schema
    assert answered.types == schema.types


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ({"db_schema_filter_pattern": "GOLD", "table_name_filter_pattern": "alert_c%"},
         ["gold.alert_current"]),
        ({"table_name_filter_pattern": "alert\\_action"}, ["gold.alert_action"]),
        ({"table_name_filter_pattern": "a_ert"}, ["gold.alert"]),
        ({"table_name_filter_pattern": "alert%", "table_types": ["VIEW"]}, ["gold.alert_current"]),
        ({"catalog": "", "table_name_filter_pattern": "alert"}, ["gold.alert"]),
        ({"catalog": "other", "table_name_filter_pattern": "alert"}, []),
    ],
)  # fmt: skip
def test_tables_are_filtered_as_drivers_ask(
    desk: FlightDesk, filters: dict[str, object], names: list[str]
) -> None:
    listed = desk.bare("CommandGetTables", **filters).to_pylist()
    assert [f"{row['db_schema_name']}.{row['table_name']}" for row in listed] == names


def test_a_limited_key_sees_and_reads_its_tables_alone(desk: FlightDesk) -> None:
    token = desk.key("limited", tables=["gold.alert"])
    listed = desk.bare("CommandGetTables", token).to_pylist()
    assert [row["table_name"] for row in listed] == ["alert"]
    assert desk.bare("CommandGetDbSchemas", token)["db_schema_name"].to_pylist() == ["gold"]
    keys = {"db_schema": "gold", "table": "alert_action"}
    assert desk.bare("CommandGetPrimaryKeys", token, **keys).num_rows == 0
    assert desk.rows("SELECT count(*) AS n FROM gold.alert", token) == [{"n": 3}]
    with pytest.raises(Exception, match=r"no table 'ops.ledger'; there are gold.alert"):
        desk.rows("SELECT * FROM ops.ledger", token)


def test_the_server_says_what_it_is_and_that_it_reads_only(desk: FlightDesk) -> None:
    facts = {row["info_name"]: row["value"] for row in desk.bare("CommandGetSqlInfo").to_pylist()}
    assert facts[0] == "Headgate"
    assert facts[3] is True
    assert facts[100] == 30_000
    assert facts[504] == "`"
    assert desk.bare("CommandGetSqlInfo", info=[3, 504])["info_name"].to_pylist() == [3, 504]
    (text,) = desk.bare("CommandGetXdbcTypeInfo", data_type=12).to_pylist()
    assert (text["type_name"], text["literal_prefix"]) == ("string", "'")
    keys = desk.bare("CommandGetPrimaryKeys", db_schema="gold", table="alert").to_pylist()
    assert [row["column_name"] for row in keys] == list(catalog()["gold.alert"].key)


def test_what_is_no_command_is_refused_in_words(desk: FlightDesk) -> None:
    options = flight.FlightCallOptions(headers=[(b"authorization", b"Bearer " + b"t" * 32)])
    with flight.FlightClient(("127.0.0.1", desk.port)) as client:
        for descriptor in (
            flight.FlightDescriptor.for_command(b"\xff\xff"),
            flight.FlightDescriptor.for_command(b""),
            flight.FlightDescriptor.for_path("gold.alert"),
        ):
            with pytest.raises(flight.FlightServerError, match="Flight SQL"):
                client.get_flight_info(descriptor, options)
        with pytest.raises(flight.FlightServerError, match="Flight SQL"):
            client.do_get(flight.Ticket(b"SELECT 1"), options)


def test_prepared_handles_of_others_are_checked_anew(desk: FlightDesk, tmp_path: Path) -> None:
    with pytest.raises(flight.FlightServerError, match="DROP is not allowed"):
        desk.bare("CommandPreparedStatementQuery", prepared_statement_handle=b"DROP TABLE x")
    with pytest.raises(flight.FlightServerError, match="none of this server's"):
        desk.bare("CommandPreparedStatementQuery", prepared_statement_handle=b"\xff")
