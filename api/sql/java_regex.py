"""Java regular expressions, as Spark has them, in the words of RE2, as DuckDB has them.

Only the part of the language that both read alike is taken; the rest is
refused with a reason rather than answered almost right.
"""

from __future__ import annotations

from infra.errors import Usage

_LINE_END = r"\n\r\x{85}\x{2028}\x{2029}"
_ANY = f"[^{_LINE_END}]"
"""Java's dot passes over five line ends, RE2's over one."""
_END = rf"(?:\r\n|[{_LINE_END}])?\z"
"""Java's dollar also stands before a last line end."""
_SPACE = r"\t\n\x{0b}\f\r "
_ESCAPES = {"d": "0-9", "w": "a-zA-Z0-9_", "s": _SPACE}
_PLAIN_ESCAPES = {"n": r"\n", "t": r"\t", "r": r"\r", "f": r"\f"}
_QUANTIFIERS = "*+?"


def to_re2(pattern: str) -> str:
    """The same pattern for RE2; raises `Usage` naming what has no equal there."""
    written: list[str] = []
    position = 0
    while position < len(pattern):
        piece, position = _next(pattern, position)
        written.append(piece)
    return "".join(written)


def _next(pattern: str, at: int) -> tuple[str, int]:
    char = pattern[at]
    if char == "\\":
        return _escape(pattern, at)
    if char == "[":
        return _char_class(pattern, at)
    if char == "(" and pattern[at + 1 : at + 2] == "?":
        if pattern[at + 2 : at + 3] != ":":
            # Look-around and named groups: RE2 has none of the first and spells the second
            # differently.
            raise _refused(pattern, pattern[at : at + 3], "write a plain or (?: ) group")
        return "(?:", at + 3
    if char in _QUANTIFIERS or char == "}":
        # `a++` never gives back what it took in Java; RE2 would read a repeat of a repeat.
        if pattern[at + 1 : at + 2] == "+":
            raise _refused(pattern, pattern[at : at + 2], "possessive quantifiers have no equal")
        return char, at + 1
    return {".": _ANY, "$": _END}.get(char, char), at + 1


def _escape(pattern: str, at: int, *, inside: bool = False) -> tuple[str, int]:
    char = pattern[at + 1 : at + 2]
    if char.lower() in _ESCAPES and char:
        if char.islower():
            return (_ESCAPES[char] if inside else f"[{_ESCAPES[char]}]"), at + 2
        if not inside:
            # Written out: RE2's own `\s` and Java's differ by the vertical tab.
            return f"[^{_ESCAPES[char.lower()]}]", at + 2
    elif char in _PLAIN_ESCAPES:
        return _PLAIN_ESCAPES[char], at + 2
    elif char and not char.isalnum() and char.isascii():
        return f"\\{char}", at + 2
    raise _refused(
        pattern, f"\\{char}", "only \\d \\w \\s \\n \\t \\r \\f and marks are read alike"
    )


def _char_class(pattern: str, position: int) -> tuple[str, int]:
    written = ["["]
    position += 1
    if pattern[position : position + 1] == "^":
        written.append("^")
        position += 1
    first = True
    while position < len(pattern) and pattern[position] != "]":
        # Java reads unions and intersections of classes here, RE2 plain characters.
        if pattern[position] == "[" or pattern[position : position + 2] == "&&":
            raise _refused(
                pattern, pattern[position : position + 2], "classes inside classes have no equal"
            )
        piece, position = (
            _escape(pattern, position, inside=True)
            if pattern[position] == "\\"
            else (pattern[position], position + 1)
        )
        written.append(piece)
        first = False
    if position >= len(pattern) or first:
        raise _refused(pattern, "[", "close the class, and write \\] for a bracket in it")
    return "".join([*written, "]"]), position + 1


def _refused(pattern: str, part: str, remedy: str) -> Usage:
    return Usage(f"regular expression '{pattern}': '{part}' cannot be answered here; {remedy}")
