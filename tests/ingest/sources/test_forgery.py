"""What an outsider fills in never yields an address, a user or an outcome, in any text source.

Each line has a hole that somebody outside fills: a user's name, a path, a host name, an agent. It
is filled with pieces of other lines of the same product, which name another address and user.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.parsing.json_source import JsonSource
from ingest.parsing.source import sources
from tests.examples import examples
from tests.ingest.logs import rows
from tests.ingest.sources.daemon_holes import DAEMONS
from tests.ingest.sources.file_holes import FILES
from tests.ingest.sources.holes import IP, REAL, USER, Holes

ALL = (*DAEMONS, *FILES)
CLOSE = (
    "",
    '"',
    "'",
    ">",
    "]",
    ")",
    "}",
    " ",
    ", ",
    " : ",
    ": ",
    "; ",
    '" ',
    "|",
    ")>",
    '",',
    "'@'",
)
WORDS = ("user", "from", "port", "client:", "rip=", "IP", "for", "=", '"', "'", " ", "<", "[", "(")
DECIDES = ("src_ip", "dst_ip", "user_name", "mac")


def fillings(kind: Holes, line: str) -> st.SearchStrategy[str]:
    """Texts made of pieces of lines of the same product that name somebody else."""
    texts = [
        one.format(USER).replace(REAL, IP).replace("10.0.0.1", IP).replace("10.0.0.9", IP)
        for one in (*kind.lines, line)
    ]
    texts += kind.imitated * 2
    piece = st.builds(
        lambda text, start, end: text[int(start * len(text)) : int(len(text) * end) + 1],
        st.sampled_from(texts),
        st.sampled_from((0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)),
        st.sampled_from((1.0, 1.0, 1.0, 0.9, 0.8, 0.6, 0.5)),
    )
    behind = st.sampled_from([line.partition("{}")[2].replace(REAL, IP), *texts])
    parts = st.one_of(piece, piece, behind, st.sampled_from(WORDS))
    return st.builds(
        lambda first, pairs, last: first + "".join(a + b for a, b in pairs) + last,
        st.sampled_from(("x", "", "root", "x y")),
        st.lists(st.tuples(st.sampled_from(CLOSE), parts), min_size=1, max_size=3),
        st.sampled_from(CLOSE),
    )


def test_every_text_source_has_lines_with_holes() -> None:
    # A source of JSON has each value under its own key, which no value can leave.
    texts = {name for name, source in sources().items() if not isinstance(source, JsonSource)}
    tried = {kind.source for kind in ALL}
    # All logs of Zeek are one reader of columns.
    assert {name for name in texts if not name.startswith("zeek:")} <= tried


@pytest.mark.parametrize("kind", ALL, ids=[kind.source for kind in ALL])
@examples(30)
@given(data=st.data())
def test_what_an_outsider_fills_in_decides_nothing(kind: Holes, data: Any) -> None:
    line = data.draw(st.sampled_from(kind.lines))
    text = data.draw(fillings(kind, line)).strip()
    raw = kind.before + line.format(kind.escape(text))
    headers = {"header": kind.header} if kind.header else {}
    # Escaped as well: some products put a name in quotes, or in hexadecimal.
    known = kind.before + line.format(kind.escape("x"))
    (honest,) = rows(kind.source, known.encode(), headers=headers)
    (row,) = rows(kind.source, raw.encode(), headers=headers)
    why = row.get("dead_letter_reason")
    assert why is None or "failed:" not in why
    # A line whose honest form names nobody would prove nothing.
    assert REAL in str(honest) or honest["class_uid"] == 0 or honest.get("user_name") == "x"
    named = {row.get(name) for name in DECIDES} | {
        (row.get(end) or {}).get("hostname") for end in ("src_endpoint", "dst_endpoint")
    }
    assert IP not in named, raw
    assert USER not in named, raw
    # None is no answer, and class 0 none either; another one than the line's own is forged.
    if row.get("status_id"):
        assert row["status_id"] == honest.get("status_id"), raw
