"""Pairs of `key=value`, whatever stands between them."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from ingest.sources.shared import key_values as module
from ingest.sources.shared.firewall import Fields
from ingest.sources.shared.key_values import key_values, put

_KEY = re.compile(r"[\s,]*([A-Za-z_][\w.-]{0,63})=", re.ASCII)


def plainly(text: str) -> Fields:
    """The same with one pattern for the blanks and the key behind them."""
    fields, words, position = Fields(), [], 0
    while position < len(text):
        match = _KEY.match(text, position)
        if match is None:
            end = module._next_space(text, position)
            word = text[position:end].strip(" ,\t")
            words += [word] if word else []
            position = end
            continue
        value, position = module._value(text, match.end(), False)
        put(fields, match[1], value)
    if words:
        fields["text"] = " ".join(words)
    return fields


@given(st.text('ab=", \t\n\f\\', max_size=24))
def test_what_stands_between_pairs_is_kept_as_text(text: str) -> None:
    assert key_values(text) == plainly(text)


def test_blank_words_are_passed_once() -> None:
    # With a look at all that are left for each of them the test would not end today.
    fields = key_values("a=1 " + "\f " * 300_000 + "!")
    assert fields["a"] == "1"
    assert fields["text"] == "\f " * 300_000 + "!"
