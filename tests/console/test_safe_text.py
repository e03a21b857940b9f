"""A text that an outsider chose reaches a page as what it is, and never as what it plays."""

from __future__ import annotations

import unicodedata
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.console.render import templates
from api.console.safe_text import LONGEST_SHOWN, plain_text, shown_text


class _Parsed(HTMLParser):
    """Tags and text of a piece of markup."""

    def __init__(self, markup: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(markup)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


ANY_TEXT = st.text(st.characters(), max_size=80)


@given(ANY_TEXT)
def test_only_our_own_spans_are_markup_whatever_the_text(text):
    parsed = _Parsed(str(shown_text(text)))
    assert {tag for tag, _ in parsed.tags} <= {"span"}
    assert all(set(attributes) <= {"class", "title"} for _, attributes in parsed.tags)


@given(ANY_TEXT)
def test_no_character_is_left_that_steers_or_hides(text):
    for result in (_Parsed(str(shown_text(text))).text, plain_text(text)):
        odd = [c for c in result if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")]
        assert odd == []


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=200))
def test_plain_ascii_is_shown_as_it_is(text):
    assert _Parsed(str(shown_text(text))).text == text
    assert plain_text(text) == text


@pytest.mark.parametrize(
    ("text", "mark"),
    [
        ("invoice\u202egpj.exe", "U+202E"),
        ("ad\u200bmin", "U+200B"),
        ("a\x1b[31mb", "U+001B"),
        ("nul\x00byte", "U+0000"),
        ("no\u00a0break", "U+00A0"),
        ("tag\U000e0041", "U+E0041"),
        ("blank\u3164letter", "U+3164"),
        ("pile" + "\u0301" * 9, "U+0301"),
    ],
)
def test_what_deceives_the_eye_is_written_as_its_code_point(text, mark):
    assert mark in _Parsed(str(shown_text(text))).text
    assert mark in plain_text(text)


@pytest.mark.parametrize(
    "text", ["p\u0430ypal.example", "\u0430\u0440\u0440\u04cf\u0435", "\uff41dmin"]
)
def test_letters_that_pass_for_latin_ones_are_marked(text):
    marked = [a for tag, a in _Parsed(str(shown_text(text))).tags if a.get("class") == "alike"]
    assert marked
    assert all("looks like Latin" in (a["title"] or "") for a in marked)


@pytest.mark.parametrize("text", ["Юрий Гагарин", "Αθήνα", "straße", "日本語", "naïve café"])
def test_words_of_other_alphabets_are_not_suspected(text):
    assert "alike" not in str(shown_text(text))


def test_a_long_text_is_cut_and_says_by_how_much():
    assert shown_text("x" * 20, 18).count("x") == 20, "words in place of less would be longer"
    assert f"{5000 - LONGEST_SHOWN:,} more characters" in shown_text("x" * 5000)


def test_a_template_that_forgets_the_filter_writes_harmless_text_all_the_same():
    template = templates().from_string('<p title="{{ text }}">{{ text }}</p>')
    written = template.render(text='"><script>\u202e\x00')
    parsed = _Parsed(written)
    assert [tag for tag, _ in parsed.tags] == ["p"]
    assert "\u202e" not in written
    assert "⟨U+202E⟩" in parsed.text
