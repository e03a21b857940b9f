"""The one way from a log's text to a page: what could deceive the eye is written out.

Control characters, marks that turn the direction of writing, and what has no width become their
code point in brackets. Letters that pass for Latin ones are marked where a word could be taken
for another.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

from markupsafe import Markup, escape

LONGEST_SHOWN = 2000
"""Characters of a text that a page shows; the rest is counted."""

_ODD = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u2800\u3164\uffa0")
"""Letters and marks that show nothing."""
_SHORT_REST = len(" … 20 more characters")
_MOST_MARKS = 2
"""Marks on one letter: languages need two, a pile of them paints over the lines beside it."""
_SYMBOLS = {"\n": "⏎", "\t": "⇥"}
_WORD = re.compile(r"[^\W_]+")

_LOOKALIKES = {
    chr(code): latin
    for codes, letters in (
        # Cyrillic, then Greek: only letters whose common typefaces draw them as the Latin one.
        (
            (0x430, 0x441, 0x501, 0x435, 0x4BB, 0x456, 0x458, 0x4CF, 0x43E, 0x440, 0x51B, 0x455,
             0x51D, 0x445, 0x443, 0x410, 0x412, 0x421, 0x415, 0x41D, 0x406, 0x408, 0x41A, 0x41C,
             0x41E, 0x420, 0x405, 0x422, 0x425, 0x4AE, 0x50C, 0x51C, 0x51A),
            "acdehijlopqswxyABCEHIJKMOPSTXYGWQ",
        ),
        (
            (0x3B1, 0x3B3, 0x3B9, 0x3BA, 0x3BD, 0x3BF, 0x3C1, 0x3C5, 0x3C7, 0x3C9, 0x391, 0x392,
             0x395, 0x396, 0x397, 0x399, 0x39A, 0x39C, 0x39D, 0x39F, 0x3A1, 0x3A4, 0x3A5, 0x3A7),
            "ayikvopuxwABEZHIKMNOPTYX",
        ),
    )
    for code, latin in zip(codes, letters, strict=True)
}  # fmt: skip


def plain_text(value: Any, longest: int = LONGEST_SHOWN) -> str:
    """A text for an attribute or a cell of plain_text text: odd characters as ⟨U+202E⟩."""
    text = str(value)
    if text.isascii() and text.isprintable() and len(text) <= longest:
        return text
    parts = [_odd_name(c) or c for c in _unpiled(text[:longest])]
    return "".join(parts) + _rest(text, longest)


def shown_text(value: Any, longest: int = LONGEST_SHOWN) -> Markup:
    """A text as markup: odd characters boxed, letters that deceive underlined, with their names."""
    text = "" if value is None else str(value)
    longest = _bound(text, longest)
    # Nearly every text of a page, and nothing in it can deceive.
    if text.isascii() and text.isprintable() and len(text) <= longest:
        return escape(text)
    cut = _unpiled(text[:longest])
    deceiving = _deceiving("".join(cut)) if cut else {}
    out, place = [], 0
    for piece in cut:
        if name := _odd_name(piece):
            label = _SYMBOLS.get(piece, name)
            out.append(
                Markup('<span class="odd" title="{}">{}</span>').format(_title(piece), label)
            )
        elif latin := deceiving.get(place):
            title = f"{_title(piece)}, looks like Latin {latin}"
            out.append(Markup('<span class="alike" title="{}">{}</span>').format(title, piece))
        else:
            out.append(escape(piece))
        place += len(piece)
    # Isolated, so that Arabic or Hebrew in it does not reorder what stands beside it.
    return Markup('<span class="iso">{}{}</span>').format(
        Markup("").join(out), _rest(text, longest)
    )


def shown_lines(value: Any, longest: int = LONGEST_SHOWN) -> Markup:
    """The same of a text whose lines and tabs are its own: a rule, a record, code."""
    text = "" if value is None else str(value)
    lines = text[:longest].replace("\r\n", "\n").split("\n")
    indented = [
        Markup("    ").join(shown_text(part, longest) for part in line.split("\t"))
        for line in lines
    ]
    return Markup("{}{}").format(Markup("\n").join(indented), _rest(text, longest))


def _bound(text: str, longest: int) -> int:
    """Where a text is cut: not for a rest that is shorter than the words in its place."""
    return longest if len(text) - longest > _SHORT_REST else len(text)


def _rest(text: str, longest: int) -> str:
    more = len(text) - longest
    return f" … {more:,} more character{'s' if more > 1 else ''}" if more > 0 else ""


def _unpiled(text: str) -> list[str]:
    """The characters, those marks as their code point that stand on too many others."""
    pieces, marks = [], 0
    for c in text:
        marks = marks + 1 if unicodedata.category(c) in ("Mn", "Me") else 0
        pieces.append(c if marks <= _MOST_MARKS else f"⟨U+{ord(c):04X}⟩")
    return pieces


def _odd_name(c: str) -> str | None:
    if len(c) != 1 or " " <= c <= "~":
        return None
    category = unicodedata.category(c)
    if category in _ODD or c in _BLANK or (category == "Zs" and c != " "):
        return f"⟨U+{ord(c):04X}⟩"
    return None


def _title(c: str) -> str:
    return f"U+{ord(c):04X} {unicodedata.name(c, 'without a name')}"


def _deceiving(text: str) -> dict[int, str]:
    """Place of each letter that could be taken for a Latin one, and for which."""
    marked: dict[int, str] = {}
    for word in _WORD.finditer(text):
        letters = [(word.start() + place, c) for place, c in enumerate(word[0]) if c.isalpha()]
        alike = {place: latin for place, c in letters if (latin := _latin(c))}
        latin_too = any(c.isascii() for _, c in letters)
        if alike and (latin_too or len(alike) == len(letters)):
            marked |= alike
        else:
            marked |= {place: latin for place, latin in alike.items() if _folded(text[place])}
    return marked


def _latin(c: str) -> str | None:
    return _LOOKALIKES.get(c) or _folded(c)


def _folded(c: str) -> str | None:
    """The Latin letter that a wide, small, or mathematical one stands for."""
    if c.isascii():
        return None
    folded = unicodedata.normalize("NFKC", c)
    return folded if folded.isascii() and folded.isalpha() and len(folded) == 1 else None
