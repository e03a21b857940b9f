"""Fields that are no column of silver.event, but are read from some.

| Written | Is |
|---|---|
| `unmapped:GrantedAccess`, `more:driver.file.path` | that key of the JSON object in the column |
| `unmapped:param*` | all its keys of that name and a number: `param1`, `param2`, ... |
| `unmapped:parameters.*` | all values of that object |
| `unmapped:Level?2=Error&3=Warning` | that key's value in other words |
| `unmapped:AccessList?%%1537=DELETE&%%1539=WRITE_DAC` | each of Windows' codes in it in words |
| `{reg_value.path}\\{reg_value.name or (Default)}` | a text of columns, with a default |
| `\\{process.parent.name}` | a bare name as the end of a path |
| `process.user@` | an account in one piece: `DOMAIN\\name`, or the name or id alone |
| `process.hashes#` | each hash as `MD5=...`, `SHA256=...` |
| `process.hashes#imphash` | the hash of that algorithm |
| `resources.type~[^/]+/(.+)` | the group of an expression that is the whole value |
| `connection_info.direction?Outbound=true&Inbound=false` | the column (or text) in other words |
| `duration/1000` | a number in another unit |

A field without a value is missing, as a column is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import msgspec

Make: TypeAlias = Callable[[Sequence[Any]], Any]
_Literals: TypeAlias = tuple[tuple[str, str], ...]

JSON_COLUMNS = ("unmapped", "more")
PLACE = re.compile(r"\{([a-z_0-9.]+)(?: or ([^{}]*))?\}")
SAFE = re.compile(r"[a-z0-9 !#$%&'()*+\-./;<=>?@^_`|~]+")
"""Text that JSON writes as it is, whoever writes it: no quotes, backslashes, control characters,
nor the commas and colons that some writers put blanks behind."""
NUMBERLIKE = re.compile(r"[0-9.+\-e]*")


class Derived(NamedTuple):
    """A field made of columns.

    `inputs` are the columns it reads, `make` gives its value from theirs, and
    `literals` finds, for a folded text that its value holds, texts of which at
    least one is in those columns (None: nothing of the kind is known).
    """

    inputs: tuple[str, ...]
    make: Make
    literals: Callable[[str], _Literals | None]


@lru_cache(maxsize=20_000)
def derived(field: str) -> Derived | None:
    """How a field is made; None when it is a plain column. Raises `ValueError` when misspelt."""
    column, colon, key = field.partition(":")
    if colon and column in JSON_COLUMNS:
        if not key:
            raise ValueError(f"'{field}' names no key after the colon")
        name, mark, words = field.partition("?")
        if mark and "=" in words:
            return _words(name, words)
        return Derived((column,), lambda values: _keyed(values[0], key), _in_json(column))
    if "~" in field:
        return _part(*field.split("~", 1))
    if "{" in field:
        text, _, words = field.rpartition("}?")
        return _words(text + "}", words) if text and "{" not in words else _template(field)
    if field.endswith("@"):
        return _account(field[:-1])
    if "#" in field:
        return _hashes(*field.split("#", 1))
    if "?" in field:
        return _words(*field.split("?", 1))
    if "/" in field:
        return _divided(*field.split("/", 1))
    return None


def inputs(field: str) -> tuple[str, ...]:
    """The columns that a field is read from: itself, unless it is derived."""
    made = derived(field)
    return made.inputs if made else (field,)


def fold(text: str) -> str:
    """`text` without case. `fold(a + b) == fold(a) + fold(b)`, which `str.lower` alone breaks:
    it writes a capital sigma in two ways, and a literal would be missed inside a longer text."""
    return text.lower() if text.isascii() else text.replace("\u03a3", "\u03c3").lower()


def text_of(value: Any) -> str:
    """A field's value as the text that rules compare: true, 22, 1.5, 2025-03-01T12:00:00+00:00."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value)


# -- keys of a JSON object ---------------------------------------------------------------------


@lru_cache(maxsize=256)
def _document(text: str) -> Any:
    """Parsed once for all rules that look at the same row."""
    try:
        return msgspec.json.decode(text)
    # Nested a thousand deep by whoever wrote the log: then it has no keys, and nothing fails.
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


def _keyed(text: Any, key: str) -> Any:
    if not isinstance(text, str):
        return None
    document = _document(text)
    if key.endswith(".*"):
        values = _inside(_find(document, key[:-2]))
    else:
        values = _numbered(document, key[:-1]) if key.endswith("*") else _find(document, key)
    scalars = [scalar for value in values for scalar in _scalars(value)]
    return None if not scalars else scalars[0] if len(scalars) == 1 else scalars


def _inside(objects: Sequence[Any]) -> list[Any]:
    """What stands under any key of the objects."""
    return [value for each in objects if isinstance(each, dict) for value in each.values()]


def _numbered(document: Any, name: str) -> list[Any]:
    """What stands under a name with a number behind it."""
    if not isinstance(document, dict):
        return []
    start = name.lower()
    return [
        value
        for key, value in document.items()
        if key.lower().startswith(start) and key[len(name) :].isdecimal()
    ]


def _find(value: Any, key: str) -> list[Any]:
    """What stands under a key, whose dots may be part of a name or lead into an object."""
    if isinstance(value, list):
        return [find for item in value for find in _find(item, key)]
    if not isinstance(value, dict):
        return []
    if key in value:
        return [value[key]]
    # A name may hold dots itself, so each dot is tried as the end of a name.
    dot = key.find(".")
    while dot > 0:
        if key[:dot] in value and (find := _find(value[key[:dot]], key[dot + 1 :])):
            return find
        dot = key.find(".", dot + 1)
    return []


def _scalars(value: Any) -> list[Any]:
    """Elements of lists one by one; an object as its compact JSON, to be searched as text."""
    if value is None:
        return []
    if isinstance(value, list):
        return [scalar for item in value for scalar in _scalars(item)]
    if isinstance(value, dict):
        return [msgspec.json.encode(value).decode()]
    return [value]


def _in_json(column: str) -> Callable[[str], _Literals | None]:
    def literals(text: str) -> _Literals | None:
        # Numbers are out: 1.0 in JSON may be 1 or 1e0 and need not occur as it is written in a
        # rule.
        runs = [run for run in SAFE.findall(text) if not NUMBERLIKE.fullmatch(run)]
        longest = max(runs, key=len, default="")
        return ((column, longest),) if longest else None

    return literals


# -- columns put into a text -------------------------------------------------------------------


def _template(field: str) -> Derived:
    as_list = list(PLACE.finditer(field))
    if not as_list or "{" in PLACE.sub("", field):
        raise ValueError(f"'{field}' is no text with {{column}} or {{column or default}} in it")
    places = [(place_match[1], place_match[2]) for place_match in as_list]
    between = PLACE.split(field)[::3]

    def place_match(values: Sequence[Any]) -> str | None:
        text = between[0]
        for value, (_, default), after in zip(values, places, between[1:], strict=True):
            shown = default if value is None else text_of(value)
            # One column without a value and no default: the whole text is missing, as a column
            # would be.
            if shown is None:
                return None
            text += shown + after
        return text

    return Derived(
        tuple(path for path, _ in places),
        _elementwise(place_match),
        _across(places, tuple(between)),
    )


def _part(path: str, pattern: str) -> Derived:
    """Written for the mapping, not for rules: Python's expressions, which may run for long."""
    whole = re.compile(pattern)
    if whole.groups != 1:
        raise ValueError(f"'{path}~{pattern}' has not one group")

    def part(values: Sequence[Any]) -> str | None:
        match = None if values[0] is None else whole.fullmatch(text_of(values[0]))
        return match[1] if match else None

    return Derived((path,), _elementwise(part), lambda text: ((path, text),))


def _account(path: str) -> Derived:
    """The parser splits `DOMAIN\\name`; rules ask for the account in one piece.

    Where a product writes an id in place of a name, that is the account.
    """
    columns = (f"{path}.domain", f"{path}.name")
    uid = f"{path}.uid"
    named = _across([(c, None) for c in columns], ("", "\\", ""))

    def whole(values: Sequence[Any]) -> str | None:
        domain, name, number = values
        if name is None:
            return None if number is None else text_of(number)
        return text_of(name) if domain is None else f"{text_of(domain)}\\{text_of(name)}"

    def literals(text: str) -> _Literals | None:
        pieces = named(text)
        return None if pieces is None else tuple(sorted({*pieces, (uid, text)}))

    return Derived((*columns, uid), _elementwise(whole), literals)


def _elementwise(one: Callable[[Sequence[Any]], str | None]) -> Make:
    """`one` for each element where columns are lists; a single value is repeated."""

    def make(values: Sequence[Any]) -> Any:
        lengths = {len(value) for value in values if isinstance(value, list)}
        if not lengths:
            return one(values)
        made = [
            one([value[i] if isinstance(value, list) else value for value in values])
            for i in range(min(lengths))
        ]
        return [text for text in made if text is not None] or None

    return make


def _across(
    places: Sequence[tuple[str, str | None]], between: tuple[str, ...]
) -> Callable[[str], _Literals | None]:
    """A text inside `{a}SEP{b}` lies in a, in b, or ends a, is SEP, and begins b.

    Inside `SEP{a}` it lies in a, but for a separator at its start.
    """

    def behind(text: str) -> _Literals | None:
        rest = text.removeprefix(fold(between[0]))
        return ((places[0][0], rest),) if rest else None

    def literals(text: str) -> _Literals | None:
        if len(places) == 1 and len(between[0]) == 1 and not between[1] and not places[0][1]:
            return behind(text)
        # Only the form that rules use; of any other nothing is said, which is always safe.
        if len(places) != 2 or between[0] or between[2] or len(between[1]) != 1:
            return None
        (left, left_default), (right, right_default) = places
        in_left = fold(left_default or "")
        in_right = fold(right_default or "")
        # A default stands in no column, so what lies in it cannot be sought there.
        if text in in_left or text in in_right:
            return None
        result = {(left, text), (right, text)}
        separator = fold(between[1])
        position = text.find(separator)
        while position >= 0:
            before, after = text[:position], text[position + len(separator) :]
            pieces = [(left, before)] if before and before not in in_left else []
            pieces += [(right, after)] if after and after not in in_right else []
            if not pieces:
                return None
            result.add(max(pieces, key=lambda piece: len(piece[1])))
            position = text.find(separator, position + 1)
        return tuple(sorted(result))

    return literals


# -- hashes ------------------------------------------------------------------------------------


def _hashes(path: str, wanted: str) -> Derived:
    columns = (f"{path}.algorithm", f"{path}.value")
    if wanted:
        return Derived(columns, _hash_of(wanted), lambda text: ((columns[1], text),))

    def literals(text: str) -> _Literals | None:
        _, equals, value = text.rpartition("=")
        return ((columns[1], value),) if equals and value else None

    return Derived(columns, _named_hashes, literals)


def _pairs(values: Sequence[Any]) -> list[tuple[str, str]]:
    """(algorithm as Sysmon writes it, value) of the hashes that have both."""
    names, hashes = ([v] if isinstance(v, str) else v or [] for v in values)
    return [
        (name.replace("-", "").upper(), value)
        for name, value in zip(names, hashes, strict=False)
        # An equals sign inside would make a text that can be read in two ways.
        if isinstance(name, str) and isinstance(value, str) and "=" not in name + value
    ]


def _named_hashes(values: Sequence[Any]) -> Any:
    return [f"{name}={value}" for name, value in _pairs(values)] or None


def _hash_of(wanted: str) -> Make:
    name = wanted.replace("-", "").upper()
    return lambda values: [value for result, value in _pairs(values) if result == name] or None


# -- other words -------------------------------------------------------------------------------


def _divided(path: str, by: str) -> Derived:
    if not by.isdecimal() or not int(by):
        raise ValueError(f"'{path}/{by}': '{by}' is no number to divide by")
    divisor = int(by)

    def one(values: Sequence[Any]) -> Any:
        number = values[0]
        if type(number) not in (int, float):
            return None
        whole, rest = divmod(number, divisor)
        return number / divisor if rest else whole

    return Derived((path,), _elementwise(one), lambda text: None)


def _words(path: str, meanings: str) -> Derived:
    words: dict[str, str] = {}
    for pair in meanings.split("&"):
        word, equals, meaning = pair.partition("=")
        if not equals:
            raise ValueError(f"'{path}?{meanings}': '{pair}' is not WORD=MEANING")
        words[fold(word)] = meaning

    coded = all(word.startswith("%%") for word in words)

    def one(values: Sequence[Any]) -> str | None:
        if values[0] is None:
            return None
        text = fold(text_of(values[0]))
        if coded:
            # A list of codes. No meaning has a line break, so a text in one is whole in it.
            return "\n".join(words.get(code, code) for code in text.split()) or None
        return words.get(text)

    translated = _elementwise(one)
    of = _template(path) if "{" in path else derived(path)

    def literals(text: str) -> _Literals | None:
        ordered = sorted(word for word, meaning in words.items() if text in fold(meaning))
        if of is None:
            return tuple((path, word) for word in ordered if word) or None
        sought = [of.literals(word) for word in ordered if word]
        if None in sought:
            return None
        return tuple(sorted({pair for pairs in sought for pair in pairs or ()})) or None

    if of is None:
        return Derived((path,), translated, literals)
    return Derived(of.inputs, lambda values: translated([of.make(values)]), literals)
