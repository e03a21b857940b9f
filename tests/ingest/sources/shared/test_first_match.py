"""One expression of many says which of them is the first to match, as asking each in turn does."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.spark.session import project_root
from ingest.sources.linux import pam_messages, sshd
from ingest.sources.shared.first_match import FirstMatch

TABLES = {
    "sshd": [pattern for *_, pattern in sshd._PATTERNS],
    "pam": [pattern for *_, pattern in pam_messages._OTHERS],
}
TEXTS = [
    line.partition(": ")[2]
    for line in (project_root() / "samples/syslog/syslog_rfc3164.log")
    .read_text("utf-8", "replace")
    .splitlines()
    if " sshd[" in line
]


def in_turn(patterns: list[re.Pattern[str]], text: str) -> tuple[int, dict[str, str]] | None:
    for place, pattern in enumerate(patterns):
        match = pattern.fullmatch(text)
        if match:
            return place, match.groupdict()
    return None


def at_once(patterns: list[re.Pattern[str]], text: str) -> tuple[int, dict[str, str]] | None:
    first = FirstMatch(patterns).find(text)
    return None if first is None else (first[0], first[1].groupdict())


@pytest.mark.parametrize("table", TABLES)
def test_recorded_lines_find_the_pattern_that_each_in_turn_finds(table: str) -> None:
    patterns = TABLES[table]
    places = [in_turn(patterns, text) for text in TEXTS]
    assert [at_once(patterns, text) for text in TEXTS] == places
    assert table != "sshd" or sum(place is not None for place in places) > 200


@given(
    table=st.sampled_from(sorted(TABLES)),
    pieces=st.lists(
        st.one_of(
            st.sampled_from(sorted({word for text in TEXTS for word in text.split(" ")})),
            st.text(max_size=4),
        ),
        max_size=14,
    ),
)
def test_any_text_finds_what_each_in_turn_finds(table: str, pieces: list[str]) -> None:
    text = " ".join(pieces)
    assert at_once(TABLES[table], text) == in_turn(TABLES[table], text)


@given(st.data())
def test_each_pattern_finds_its_own_texts(data: st.DataObject) -> None:
    table = data.draw(st.sampled_from(sorted(TABLES)))
    text = data.draw(st.from_regex(data.draw(st.sampled_from(TABLES[table])), fullmatch=True))
    expected = in_turn(TABLES[table], text)
    assert expected is not None
    assert at_once(TABLES[table], text) == expected


@pytest.mark.parametrize("pattern", ["(a)b", "(?P<one>a)(?P=one)"])
def test_what_cannot_be_asked_together_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=re.escape(pattern)):
        FirstMatch([re.compile(pattern)])


def test_patterns_of_other_flags_are_refused() -> None:
    with pytest.raises(ValueError, match="same flags"):
        FirstMatch([re.compile("a"), re.compile("b", re.IGNORECASE)])
