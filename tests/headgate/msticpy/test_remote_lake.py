"""Statements over REST as pandas frames."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from api.routes import statements
from headgate.msticpy import remote_lake
from headgate.msticpy.remote_lake import RemoteLake, frame_of
from infra.errors import Retryable, Usage
from tests.api.plain_desk import PlainDesk
from tests.api.server import served

TOKEN = "t" * 32


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    desk = PlainDesk(tmp_path_factory.mktemp("lake"), statement_rows=5, requests_per_minute=30)
    with served(desk.settings) as address:
        yield address


def test_rows_have_instants_and_numbers_of_their_types(url: str) -> None:
    frame, answer = RemoteLake(url, TOKEN).ask(
        "SELECT alert_id, revision, event_time, CAST(NULL AS int) AS none, 1.5D AS d "
        "FROM gold.alert WHERE level = :level",
        params={"level": "high"},
    )
    kinds = [str(kind) for kind in frame.dtypes]
    assert kinds == ["object", "Int32", "datetime64[ns, UTC]", "Int32", "Float64"]
    assert len(frame) == len(answer["rows"])
    assert frame.attrs["engine"] == answer["engine"] == "duckdb"


def test_what_json_has_no_number_for_and_two_columns_of_a_name_are_kept() -> None:
    column = {"name": "x", "type": "double"}
    frame = frame_of([column, column, column], [["Infinity", None, 2.5]])
    assert frame.iloc[0].isna().tolist() == [False, True, False]
    assert frame.iloc[0].dropna().tolist() == [float("inf"), 2.5]


def test_a_cut_answer_warns_and_says_so(url: str) -> None:
    six = " UNION ALL ".join(f"SELECT {number} AS n" for number in range(6))
    with pytest.warns(UserWarning, match=r"cut after 5 rows \(limit: rows\)"):
        frame, _ = RemoteLake(url, TOKEN).ask(six)
    assert frame.attrs["truncated_by"] == "rows"


@pytest.mark.full
def test_what_takes_longer_is_waited_for_and_comes_whole(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statements, "USUAL_WAIT", 0.0)
    monkeypatch.setattr(remote_lake, "_PAGE", 4)
    six = " UNION ALL ".join(f"SELECT {number} AS n" for number in range(6))
    frame, answer = RemoteLake(url, TOKEN).ask(f"SELECT n FROM ({six}) ORDER BY n")
    assert frame["n"].tolist() == list(range(6)), "more than api.statement_rows"
    assert (answer["truncated"], answer["engine"]) == (False, "duckdb")
    with pytest.warns(UserWarning, match=r"cut after 2 rows \(limit: rows\)"):
        frame, _ = RemoteLake(url, TOKEN).ask(six, max_rows=2)
    assert len(frame) == 2
    with pytest.raises(Usage, match="DROP is not allowed"):
        RemoteLake(url, TOKEN).ask("DROP TABLE gold.alert")


def test_refusals_are_the_api_s_sentences(url: str) -> None:
    with pytest.raises(Usage, match="DROP is not allowed"):
        RemoteLake(url, TOKEN).ask("DROP TABLE gold.alert")
    with pytest.raises(Usage, match="send the API token"):
        RemoteLake(url, "wrong").tables()
    with pytest.raises(Retryable, match="does not answer"):
        RemoteLake("http://127.0.0.1:9", TOKEN).tables()


@pytest.mark.parametrize(
    ("url", "token", "sentence"),
    [
        ("headgate.example.org", TOKEN, "is no address of the API"),
        ("http://headgate.example.org", TOKEN, "must not cross a network without TLS"),
        ("https://headgate.example.org", "", "give token or token_file"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_it_is(url: str, token: str, sentence: str) -> None:
    with pytest.raises(Usage, match=sentence):
        RemoteLake(url, token)


def test_tables_are_listed_with_their_columns(url: str) -> None:
    tables = RemoteLake(url, TOKEN).tables()
    assert tables["gold.alert"]["alert_id"] == "string"
    assert "gold.alert_current" in tables
