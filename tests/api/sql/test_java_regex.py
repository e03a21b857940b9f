"""Java patterns in RE2's words."""

from __future__ import annotations

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from api.sql.java_regex import to_re2
from infra.errors import Usage

JAVA_LINE_ENDS = "\n\r\u0085\u2028\u2029"


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("a.b", "axb", True),
        *(("a.b", f"a{end}b", False) for end in JAVA_LINE_ENDS),
        ("b$", "ab", True),
        ("b$", "ab\r\n", True),
        ("b$", "ab\n\n", False),
        ("^b", "a\nb", False),
        (r"\s", "a\x0bb", True),
        (r"[^\s]", "\x0b", False),
        (r"\d{2,3}", "a12", True),
        (r"(?:ab|cd)+", "xcd", True),
        (r"[\]\-x]", "]", True),
        (r"\.", "x", False),
        (r"\w", "é", False),
    ],
)
def test_a_pattern_finds_what_java_finds(pattern: str, text: str, found: bool) -> None:
    assert bool(re2.search(to_re2(pattern), text)) is found


@pytest.mark.parametrize(
    "pattern",
    ["(?=x)", "(?i)x", "(?<n>x)", r"(a)\1", r"\bx", r"\p{L}", "x*+", "x++", "[a&&b]", "[a[b]]",
     "[[:alpha:]]", "[", "[]", r"[\S]", "\\", r"\x41", r"\Q.\E", r"\A"],
)  # fmt: skip
def test_what_re2_reads_otherwise_is_refused_by_its_part(pattern: str) -> None:
    with pytest.raises(Usage, match="cannot be answered here"):
        to_re2(pattern)


@given(st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=20))
def test_escaped_text_finds_itself_and_stays_one_literal(text: str) -> None:
    pattern = "".join(f"\\{c}" if c.isascii() and not c.isalnum() else c for c in text)
    found = re2.search(to_re2(pattern), f"<{text}>")
    assert found is not None
    assert found.group(0) == text


@given(st.text(alphabet="ab\\[](){}*+?.^$|&-d w", max_size=12))
def test_any_pattern_is_translated_or_refused_never_a_crash(pattern: str) -> None:
    try:
        written = to_re2(pattern)
    except Usage:
        return
    assert written.count(r"\z") <= pattern.count("$")
    assert len(written) >= len(pattern)
