"""The driver that DBeaver and others load reads the lake over JDBC, in a JVM of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

from infra.process.java_jars import Jar, jars_folder, resolve
from infra.process.jdk import require_java
from tests.api.flight.flight_desk import FlightDesk

pytestmark = pytest.mark.full

DRIVER = Jar(
    "jdbc",
    "org.apache.arrow",
    "flight-sql-jdbc-driver",
    "18.3.0",
    "3f418b46c880e263558c5de669bdbede2c5d4375527ced116fb29f795b03704c",
)
"""No command of ours needs it, so no lock has it; it is fetched and checked as the others are."""


@pytest.fixture(scope="module")
def java() -> Iterator[Any]:
    """A JVM that has the driver and nothing of ours."""
    resolve([DRIVER])
    port = launch_gateway(
        jarpath=str(next(Path(pyspark.__file__).parent.glob("jars/py4j-*.jar"))),
        classpath=str(jars_folder() / DRIVER.used_by / DRIVER.file),
        javaopts=["--add-opens=java.base/java.nio=ALL-UNNAMED"],
        java_path=require_java(),
        die_on_exit=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    yield gateway.jvm
    gateway.shutdown()


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlightDesk]:
    running = FlightDesk(tmp_path_factory.mktemp("jdbc"))
    yield running
    running.close()


def connection(java: Any, desk: FlightDesk, password: str) -> Any:
    url = f"jdbc:arrow-flight-sql://127.0.0.1:{desk.port}?useEncryption=false"
    return java.java.sql.DriverManager.getConnection(url, "token", password)


def test_a_key_reads_rows_and_their_types(java: Any, desk: FlightDesk) -> None:
    with_key = connection(java, desk, desk.key("dbeaver"))
    rows = with_key.createStatement().executeQuery("SELECT 7 AS x, 'a' AS y, CAST(NULL AS INT) z")
    kinds = rows.getMetaData()
    assert [kinds.getColumnName(n) for n in (1, 2, 3)] == ["x", "y", "z"]
    assert rows.next()
    assert (rows.getInt("x"), rows.getString("y"), rows.getObject("z")) == (7, "a", None)
    assert not rows.next()
    rows.close()
    with_key.close()
    assert desk.audited()[-1]["who"] == "dbeaver"


def test_tables_and_their_columns_are_listed_as_a_tool_lists_them(
    java: Any, desk: FlightDesk
) -> None:
    with_key = connection(java, desk, desk.key("lists", "read"))
    known = with_key.getMetaData()
    tables, names = known.getTables(None, "gold", "%", None), set()
    while tables.next():
        names.add(tables.getString("TABLE_NAME"))
    tables.close()
    assert {"alert", "alert_current"} <= names
    with_key.close()


def test_what_writes_and_who_is_unknown_is_refused_in_words(java: Any, desk: FlightDesk) -> None:
    with_key = connection(java, desk, desk.key("writes"))
    with pytest.raises(Py4JJavaError, match="SELECT"):
        with_key.createStatement().executeQuery("DELETE FROM gold.alert")
    with_key.close()
    with pytest.raises(Py4JJavaError, match="send a token or key"):
        connection(java, desk, "wrong")
