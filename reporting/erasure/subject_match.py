"""Finding and replacing what names a person or a device in rows of any shape.

A word counts wherever it stands as a word of its own: in a column, deep in a list of structs,
in JSON kept as text, in the bytes of a raw record. Upper and lower case are one, and letters are
those of all scripts. The search is RE2's, by way of Arrow: linear in the text, whatever the words
are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from infra.errors import Usage

SHORTEST = 3
"""A shorter word would be found in half of all rows."""

_MAC = re.compile(r"[0-9a-f]{12}")


@dataclass(frozen=True)
class _Edges:
    """What stands before and after a word of its own, as expressions of one group each."""

    before: str
    after: str


def _edges(letters: str, sign: str) -> _Edges:
    """`letters`: a class of what words are made of. `sign`: an expression for one of the rest.

    `bob` is not in `alice.bob` or `x-bob`, but in `CORP\\bob` and `/home/bob`; not in `bob.smith`,
    but in `bob@corp.example` and at the end of a sentence.
    """
    return _Edges(
        rf"(^|{sign}|(?:^|[.-]|{sign})[.-])",
        rf"($|[^{letters}.-]|[.-](?:$|[^{letters}]))",
    )


_LETTERS = r"\p{L}\p{M}\p{N}_"
_TEXT = _edges(_LETTERS, rf"[^{_LETTERS}.-]")

# Bytes that are no UTF-8: packed records, and texts in an older encoding. What is a letter there
# cannot be told for sure. From 0xC0 on it is one of Latin-1 or begins one of UTF-8; the bytes below
# it go on with what these began, or are signs of Latin-1 and lengths in packed records.
_HIGH = r"0-9A-Za-z_\xc0-\xff"
_BYTES = _edges(_HIGH, rf"(?:[^{_HIGH}\x80-\xbf.-]|(?:^|[\x00-\x7f])[\x80-\xbf]+)")


@dataclass(frozen=True)
class Word:
    """A text that names the subject, and what stands in its place afterwards."""

    text: str
    instead: str

    @property
    def quoted(self) -> str:
        """The word as RE2 takes it by its letters, in text."""
        return _quoted(self.text)

    @property
    def spelled(self) -> str:
        """The same in bytes, where RE2 knows capitals of ASCII alone."""
        return "".join(
            _quoted(text) if text.isascii() else f"(?-i:{'|'.join(_cases(text))})"
            for text in self.text
        )


def _cases(letter: str) -> list[str]:
    return sorted({letter, letter.lower(), letter.upper()})


def person(names: Iterable[str], instead: str) -> tuple[Word, ...]:
    """The words for a person's names: as they are, and as JSON and percent-encoding write them.

    Raises `Usage` for a name too short to be told from other text.
    """
    words: dict[str, Word] = {}
    for name in names:
        if len(name) < SHORTEST:
            raise Usage(
                f"'{name}': shorter than {SHORTEST} characters, it would be found in other words; "
                "give a longer name, such as DOMAIN\\name or the mail address"
            )
        spelled = {name, name.replace("\\", "\\\\"), name.replace("@", "%40")}
        spelled |= {name.replace(" ", "%20"), name.replace(" ", "+")}
        # Beyond ASCII, capitals are other letters once they are encoded.
        cases = {name} if name.isascii() else {name, name.lower(), name.upper(), name.title()}
        spelled |= cases | {json.dumps(case)[1:-1] for case in cases} | set(map(quote, cases))
        for text in sorted(spelled):
            words.setdefault(text.lower(), Word(text, instead))
    # The longest first: `anna@corp.example` goes as a whole and not as `anna`.
    return tuple(sorted(words.values(), key=lambda word: (-len(word.text), word.text)))


def device(mac: str, instead: str) -> tuple[Word, ...]:
    """The words for a hardware address as logs spell it: with colons, hyphens, dots, or none.

    `instead`: twelve hexadecimal digits, written as the address was; any other text as it is.
    Raises `Usage` for what is no hardware address.
    """
    digits = re.sub(r"[^0-9a-f]", "", mac.lower())
    if not _MAC.fullmatch(digits) or re.search(r"[^0-9A-Fa-f:.-]", mac):
        raise Usage(f"'{mac}' is no hardware address; write aa:bb:cc:dd:ee:ff")
    as_mac = bool(_MAC.fullmatch(instead))
    return tuple(Word(form(digits), form(instead) if as_mac else instead) for form in _SPELLINGS)


def _by(size: int, mark: str) -> Callable[[str], str]:
    return lambda digits: mark.join(digits[index : index + size] for index in range(0, 12, size))


_SPELLINGS = (_by(2, ":"), _by(2, "-"), _by(4, "."), _by(12, ""))


class Search:
    """Some words, looked for together."""

    def __init__(self, words: Sequence[Word]) -> None:
        self.words = tuple(words)
        self._in_text = _Finder(_TEXT, [word.quoted for word in self.words])
        self._in_bytes = _Finder(_BYTES, [word.spelled for word in self.words])
        # In one expression what is replaced alike: to make one takes as long as to use it.
        alike: dict[str, list[Word]] = {}
        for word in self.words:
            alike.setdefault(word.instead, []).append(word)
        self._alike = [
            (
                rf"\1{instead}\2",
                _pattern(_TEXT, [word.quoted for word in words]),
                _pattern(_BYTES, [word.spelled for word in words]),
            )
            for instead, words in alike.items()
        ]

    def rows(self, array: pa.Array) -> pa.Array:
        """Which rows of a column, of any type, have one of the words in them."""
        none = pa.array([False] * len(array), pa.bool_())
        kind = array.type
        if _is_text(kind):
            return _by_kind(array, self._in_text.rows, self._in_bytes.rows)
        if pa.types.is_struct(kind):
            matching = none
            for index in range(kind.num_fields):
                matching = pc.or_(matching, self.rows(pc.struct_field(array, [index])))
            return matching
        if pa.types.is_list(kind) or pa.types.is_map(kind):
            inner = self.rows(_inside(array))
            if not pc.any(inner).as_py():
                return none
            rows = pc.filter(_parents(array), inner).to_pylist()
            held = set(rows)
            return pa.array([index in held for index in range(len(array))], pa.bool_())
        return none

    def text(self, text: str) -> str:
        """A text with every word replaced."""
        replaced: str = self.replaced(pa.array([text], pa.string()))[0].as_py()
        return replaced

    def has(self, text: str) -> bool:
        """Whether a text has one of the words in it."""
        return bool(self.rows(pa.array([text], pa.string()))[0].as_py())

    def replaced(self, array: pa.Array) -> pa.Array:
        """A column with every word replaced, of the same type."""
        kind = array.type
        if _is_text(kind):
            return _by_kind(array, self._replaced_text, self._replaced_bytes).cast(kind)
        if pa.types.is_struct(kind):
            parts = [
                self.replaced(pc.struct_field(array, [index])) for index in range(kind.num_fields)
            ]
            return pa.StructArray.from_arrays(
                parts, fields=list(kind), mask=pc.is_null(array).combine_chunks()
                if isinstance(array, pa.ChunkedArray) else pc.is_null(array),
            )  # fmt: skip
        if pa.types.is_list(kind):
            return _like(array, self.replaced(_inside(array)))
        if pa.types.is_map(kind):
            return _like(array, self.replaced(_inside(array)))
        return array

    def _replaced_text(self, array: pa.Array) -> pa.Array:
        if not pc.any(self._in_text.rows(array)).as_py():
            return array
        return _reworded(array, [(pattern, instead) for instead, pattern, _ in self._alike])

    def _replaced_bytes(self, array: pa.Array) -> pa.Array:
        if not pc.any(self._in_bytes.rows(array)).as_py():
            return array
        return _reworded(array, [(pattern, instead) for instead, _, pattern in self._alike])


class _Finder:
    """Which rows of texts, or of bytes, have one of some words in them."""

    def __init__(self, edges: _Edges, words: Sequence[str]) -> None:
        self._anywhere = f"(?i:{'|'.join(words)})"
        self._of_its_own = _pattern(edges, words)

    def rows(self, array: pa.Array) -> pa.Array:
        """True and False, no null."""
        # Most columns of most files have no such letters at all, and to make the whole expression
        # takes longer than to read a small file with the short one.
        if array.null_count < len(array):
            fill_null = pc.fill_null(pc.match_substring_regex(array, self._anywhere), False)
            if not pc.any(fill_null).as_py():
                return fill_null
            return pc.fill_null(pc.match_substring_regex(array, self._of_its_own), False)
        return pa.array([False] * len(array), pa.bool_())


def _pattern(edges: _Edges, words: Sequence[str]) -> str:
    # Only the words regardless of capitals: to fold the large classes takes RE2 many times as long.
    return f"{edges.before}(?i:{'|'.join(words)}){edges.after}"


def _reworded(array: pa.Array, patterns: Sequence[tuple[str, str]]) -> pa.Array:
    for pattern, instead in patterns:
        # Twice: of `bob bob` the blank between belongs to the first, so the second is left.
        for _ in range(2):
            array = pc.replace_substring_regex(array, pattern=pattern, replacement=instead)
    return array


def _by_kind(
    array: pa.Array, text: Callable[[pa.Array], pa.Array], raw: Callable[[pa.Array], pa.Array]
) -> pa.Array:
    """What `text` makes of all that is UTF-8, also in bytes, and `raw` of the rest.

    So a name is found alike in a column and in the record that the column was read from.
    """
    if not (pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type)):
        return text(array)
    try:
        return text(array.cast(_as_text(array.type)))
    except pa.ArrowInvalid:
        mask = pa.array([_is_utf8(row) for row in array.to_pylist()], pa.bool_())
    others = raw(array.filter(pc.invert(mask)))
    read = text(array.filter(mask).cast(_as_text(array.type))).cast(others.type)
    places = [pc.indices_nonzero(mask), pc.indices_nonzero(pc.invert(mask))]
    return pa.concat_arrays([read, others]).take(pc.sort_indices(pa.concat_arrays(places)))


def _as_text(kind: pa.DataType) -> pa.DataType:
    return pa.large_string() if pa.types.is_large_binary(kind) else pa.string()


def _is_utf8(content: bytes | None) -> bool:
    try:
        (content or b"").decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )


def _inside(array: pa.Array) -> pa.Array:
    """The values of all lists, or the entries of all maps, one after another."""
    if pa.types.is_map(array.type):
        fields = [array.type.key_field, array.type.item_field]
        whole = array if array.offset == 0 else pa.concat_arrays([array])
        begin, end = whole.offsets[0].as_py(), whole.offsets[-1].as_py()
        keys, items = whole.keys[begin:end], whole.items[begin:end]
        return pa.StructArray.from_arrays([keys, items], fields=fields)
    return pc.list_flatten(array)


def _parents(array: pa.Array) -> pa.Array:
    """The row of each of these."""
    if not pa.types.is_map(array.type):
        return pc.list_parent_indices(array)
    counts = [0 if row is None else len(row) for row in array.to_pylist()]
    return pa.array([index for index, count in enumerate(counts) for _ in range(count)], pa.int64())


def _like(array: pa.Array, values: pa.Array) -> pa.Array:
    """Lists or maps of the same lengths with other values; nulls stay."""
    if pa.types.is_map(array.type):
        pairs = values.to_pylist()
        counts = [None if row is None else len(row) for row in array.to_pylist()]
        key, item = array.type.key_field.name, array.type.item_field.name
        rows, position = [], 0
        for count in counts:
            taken = pairs[position : position + (count or 0)]
            rows.append(None if count is None else [(entry[key], entry[item]) for entry in taken])
            position += count or 0
        return pa.array(rows, array.type)
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_pylist()
    offsets, end = [0], 0
    for length in lengths:
        end += length
        offsets.append(end)
    return pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()), values, type=array.type, mask=pc.is_null(array)
    )


def _quoted(text: str) -> str:
    """A text that RE2 takes by its letters."""
    return re.sub(r"([^0-9A-Za-z_\x80-\U0010ffff])", r"\\\1", text)
