"""The driver in msticpy's own `QueryProvider`, where msticpy is installed.

msticpy 3.0 wants an older NumPy than the lock file has, so `make test` is without it. In an
environment of its own: `pip install headgate[msticpy] pytest`, then this file.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("msticpy", reason="in an environment of its own, as said above")

from msticpy.data import QueryProvider

from headgate.msticpy.driver import spark_instant, spark_list
from infra.errors import Usage
from tests.api.plain_desk import PlainDesk
from tests.api.server import served


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    desk = PlainDesk(tmp_path_factory.mktemp("lake"))
    with served(desk.settings) as url:
        yield url


@pytest.fixture
def provider(address: str, tmp_path: Path) -> Any:
    key = tmp_path / "key"
    key.write_text("t" * 32 + "\n")
    made = QueryProvider("Headgate")
    made.connect(address, token_file=str(key))
    return made


def test_a_provider_asks_with_parameters(provider: Any) -> None:
    frame = provider.exec_query(
        "SELECT count(*) AS n FROM gold.alert WHERE revision = :revision", params={"revision": 1}
    )
    assert frame["n"].tolist() == [3]
    assert "gold.alert" in provider.schema_tables


def test_a_refusal_is_the_api_s_sentence(provider: Any) -> None:
    with pytest.raises(Usage, match="DROP is not allowed"):
        provider.exec_query("DROP TABLE gold.alert")


def test_who_is_not_connected_is_told_how(address: str) -> None:
    with pytest.raises(Exception, match="connect"):
        QueryProvider("Headgate").exec_query("SELECT 1")
    with pytest.raises(Usage, match="send the API token"):
        QueryProvider("Headgate").connect(address, token="wrong")


def test_instants_and_lists_are_written_as_statements_have_them(provider: Any) -> None:
    frame = provider.exec_query(
        f"SELECT count(*) AS n FROM gold.alert WHERE event_time < {spark_instant(datetime.now())} "
        f"AND level IN ({spark_list(['high', 'medium', 'low', 'critical', chr(39)])})"
    )
    assert frame["n"].tolist() == [3]
    assert spark_instant(datetime(2026, 11, 20, tzinfo=UTC)) == (
        "TIMESTAMP '2026-11-20 00:00:00.000000'"
    )
    assert spark_list([1, "it's"]) == "1, 'it\\'s'"
