"""What a notebook shows of a result: for people, and harmless."""

from __future__ import annotations

from datetime import UTC, datetime

from headgate.result import result_of

ROW = {
    "time": datetime(2026, 3, 2, 12, 0, 0, 250_000, tzinfo=UTC),
    "level": "critical",
    "title": "SSH <b>guessing</b>\u202e",
    "port": 8080,
    "score": 6.25,
    "verdict": None,
    "src": {"ip": "10.0.0.5"},
}


def test_a_result_is_shown_for_people_and_what_a_log_says_stays_text() -> None:
    shown = result_of([ROW])._repr_html_()
    assert shown.startswith("<p>1 row:</p><table>")
    for part in (
        ">time (UTC)</th>",
        ">2026-03-02 12:00:00.250</td>",
        "><b>critical</b></td>",
        ">8080</td>",
        ">6.25</td>",
        "></td>",
        ">{&quot;ip&quot;: &quot;10.0.0.5&quot;}</td>",
        "SSH &lt;b&gt;guessing&lt;/b&gt;\\u202e",
    ):
        assert part in shown
    assert "None" not in shown


def test_of_a_long_result_ten_rows_are_shown_and_long_texts_are_cut() -> None:
    shown = result_of([{"time": None, "text": "x" * 500}] * 12, total=40)._repr_html_()
    assert "12 rows (cut: there are 40); the first 10:" in shown
    assert shown.count("<tr>") == 11
    assert "x" * 159 + "\u2026<" in shown
    assert "0 rows" in result_of([], ["time"])._repr_html_()
