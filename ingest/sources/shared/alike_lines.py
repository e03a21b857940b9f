"""Syslog lines that differ in nothing but times, names, addresses and numbers, many at once.

Few wordings occur, however many lines there are. Of each the row reader is asked twice
(`ingest.sources.shared.line_templates`), and lines of a wording without a template are left to it.
So both agree as long as the reader treats one value of a mask like any other; masks are narrow for
that reason, and whatever else a line holds is part of its wording.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ingest.parsing.arrow_parser import to_arrow
from ingest.parsing.source import ParseSettings, Read
from ingest.parsing.vectorized import (
    batch_of,
    looked_up,
    plain_texts,
    read_of,
    record_columns,
    times_of_lines,
)
from ingest.sources.shared.line_templates import MASKS, Template, Wording, templates
from ingest.sources.shared.template_columns import Filled

FEWEST_LINES = 32
"""Lines of a source in a batch that are worth it."""
FEWEST_ALIKE = 4
"""Lines of a wording that are worth two questions to the row reader."""
_MOST_WORDINGS = 256
_LONGEST = 2_000

PORT = r"(?:[1-9]\d{0,3}|[1-5]\d{4}|6[0-4]\d{3}|65[0-4]\d\d|655[0-2]\d|6553[0-5])"
MAC = r"[0-9a-f][0-9a-f](?::[0-9a-f][0-9a-f]){5}"
USER = r"[a-z_][a-z0-9_-]{0,31}"

_ISO = r"\d\d\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)"
_BSD = r"[A-Z][a-z][a-z] (?: \d|[1-9]\d) \d\d:\d\d:\d\d"
_HOST = r"(?P<host>[A-Za-z][\w.-]*)"
_PROGRAM, _PID = r"(?P<program> [a-z][a-z_-]+)", r"(?P<pid>(?:[1-9]\d*)?)"
_TEXT = r"(?P<text>[^\x00\n]+)"
# In the order of the line; what is not named after a mask stays. Bounds are looked at afterwards,
# because a repetition that is bounded makes RE2 three times as slow.
_HEADERS = (
    rf"^(?P<before>(?:<\d+>)?)(?P<time>{_BSD}|{_ISO})(?P<a> ){_HOST}"
    rf"{_PROGRAM}(?P<b>\[?){_PID}(?P<c>\]?: +){_TEXT}$",
    rf"^(?P<before><\d+>1 )(?P<time>{_ISO})(?P<a> ){_HOST}"
    rf"{_PROGRAM}(?P<b> ){_PID}(?P<c>-? - - +){_TEXT}$",
)
_LONGEST_OF = {"before": 8, "pid": 7, "program": 32, "host": 200}
_HOSTS = r"^[A-Za-z][\w-]{0,62}(\.[\w-]{1,62})*$"
# A host of few capitals may be taken for the clock's zone.
_CAPITALS = r"^[^a-z]{1,5}$"
# A word of the reader's own, taken for a name, could make it read another pattern.
_NO_NAMES = pa.array(
    ["invalid", "illegal", "user", "from", "for", "port", "by", "authenticating", "unknown"]
)


class _Text(NamedTuple):
    """How what follows the header may be worded, as an expression whose groups all have names."""

    expression: str
    stays: tuple[str, ...]
    masks: tuple[str, ...]


def _text(expression: str) -> _Text:
    """A wording, its groups in turn what stays and what differs, the latter named after masks."""
    numbers = iter(range(100))
    named = re.sub(r"(?<!\\)\((?!\?)", lambda _: f"(?P<s{next(numbers)}>", expression)
    groups = re.findall(r"\(\?P<(\w+)>", named)
    if len(groups) % 2 == 0:
        named, groups = f"{named}(?P<end>)", [*groups, "end"]
    stays, masks = tuple(groups[0::2]), tuple(groups[1::2])
    if any(name not in MASKS for name in masks) or any(name in MASKS for name in stays):
        raise ValueError(f"what stays and what differs must take turns in {expression}")
    return _Text(f"^{named}$", stays, masks)


class _Lines(NamedTuple):
    """Lines of some records: where these stand, their wordings, and what they have for masks."""

    places: npt.NDArray[np.int64]
    keys: pa.Array
    """What stays, the form of the time and the number of the text before it."""
    columns: dict[str, pa.Array]


def alike_reader(source: str, *wordings: str) -> Callable[[pa.RecordBatch, ParseSettings], Read]:
    """What reads those of a source's records that are worded like others, as `Source.columns` does.

    `wordings`: expressions for what follows the header, whose groups in turn stay and differ, the
    latter named after masks; the first that fits a line is the line's.
    """
    texts = tuple(map(_text, wordings))
    return lambda records, settings: _read_alike(source, records, settings, texts)


def _read_alike(
    source: str, records: pa.RecordBatch, settings: ParseSettings, texts: Sequence[_Text]
) -> Read:
    rows = records.num_rows
    if rows < FEWEST_LINES:
        return Read(None, list(range(rows)))
    lines = _worded(records, texts)
    if not len(lines.places):
        return Read(None, list(range(rows)))
    lines, known = _with_templates(source, settings, lines, texts)
    if known:
        lines = _timed(source, records, settings, lines)
    if not known or not len(lines.places):
        return Read(None, list(range(rows)))
    return read_of(_events(source, records, settings, lines, known), rows, lines.places)


# -- what stays and what differs -------------------------------------------------------------------


def _worded(records: pa.RecordBatch, texts: Sequence[_Text]) -> _Lines:
    """The lines whose header and text are worded in a known way."""
    whole = plain_texts(records, _LONGEST)
    parts: list[_Lines] = []
    for form, header in enumerate(_HEADERS):
        read = pc.extract_regex(whole, header)
        columns = dict(zip((field.name for field in read.type), read.flatten(), strict=True))
        sound = _sound(columns, form)
        places = np.flatnonzero(np.asarray(pc.fill_null(sound, False)))
        columns = {name: values.take(pa.array(places)) for name, values in columns.items()}
        parts += _by_text(places, columns, texts)
    if not parts:
        return _Lines(np.zeros(0, np.int64), pa.array([], pa.string()), {})
    columns = {
        name: pa.concat_arrays([part.columns[name] for part in parts]) for name in parts[0].columns
    }
    places = np.concatenate([part.places for part in parts])
    return _Lines(places, pa.concat_arrays([part.keys for part in parts]), columns)


def _sound(columns: dict[str, pa.Array], form: int) -> pa.Array:
    """Which headers are as narrow as they must be."""
    sound = pc.match_substring_regex(columns["host"], _HOSTS)
    sound = pc.and_(sound, pc.invert(pc.match_substring_regex(columns["host"], _CAPITALS)))
    for name, longest in _LONGEST_OF.items():
        sound = pc.and_(sound, pc.less_equal(pc.utf8_length(columns[name]), longest))
    # A number in brackets, or neither: RE2 cannot say that one group needs another.
    number = pc.greater(pc.utf8_length(columns["pid"]), 0)
    opened, closed = columns["b"], columns["c"]
    if form == 0:
        paired = pc.and_(
            pc.equal(pc.equal(opened, "["), number), pc.equal(pc.starts_with(closed, "]"), number)
        )
    else:
        paired = pc.not_equal(pc.starts_with(closed, "-"), number)
    return pc.and_(sound, paired)


def _by_text(
    places: npt.NDArray[np.int64], header: dict[str, pa.Array], texts: Sequence[_Text]
) -> list[_Lines]:
    """Lines of one kind of header, text by text."""
    parts = []
    for number, each in enumerate(texts):
        if not len(places):
            break
        read = pc.extract_regex(header["text"], each.expression)
        groups = dict(zip((field.name for field in read.type), read.flatten(), strict=True))
        fits = np.asarray(read.is_valid())
        if not fits.any():
            continue
        taken = pa.array(np.flatnonzero(fits))
        here = {name: values.take(taken) for name, values in header.items()}
        groups = {name: values.take(taken) for name, values in groups.items()}
        mine = places[fits]
        rest = pa.array(np.flatnonzero(~fits))
        places = places[~fits]
        header = {name: values.take(rest) for name, values in header.items()}
        keys = _keys(number, here, groups, each)
        masks = {
            name: groups.get(name, here.get(name))
            if name in groups or name in here
            else pa.nulls(len(mine), pa.string())
            for name in (*MASKS, "text")
        }
        lines = _Lines(mine, keys, masks)
        if "user" in each.masks:
            lines = _where(lines, pc.invert(pc.is_in(groups["user"], _NO_NAMES)))
        parts.append(lines)
    return parts


def _keys(
    number: int, header: dict[str, pa.Array], groups: dict[str, pa.Array], text: _Text
) -> pa.Array:
    """What stays in each line as one text, parted by NUL, which no line holds."""
    form = pc.if_else(pc.match_substring_regex(header["time"], r"^\d"), "iso", "bsd")
    return pc.binary_join_element_wise(
        f"{number}", form, header["before"], header["program"], header["b"], header["c"],
        *(groups[name] for name in text.stays), "\x00",
    )  # fmt: skip


def _wording(key: str, texts: Sequence[_Text]) -> Wording:
    """The wording of which `_keys` made a text."""
    number, form, before, program, opened, closed, *stays = key.split("\x00")
    masks = texts[int(number)].masks
    first = closed + stays[0]
    # Without a number the brackets around it are empty as well.
    if opened == "[" or (opened == " " and not closed.startswith("-")):
        numbered = (before, " ", program + opened, first, *stays[1:])
        return Wording(form, numbered, ("time", "host", "pid", *masks))
    return Wording(
        form, (before, " ", program + opened + first, *stays[1:]), ("time", "host", *masks)
    )


# -- their events ----------------------------------------------------------------------------------


def _where(lines: _Lines, keep: pa.Array) -> _Lines:
    taken = np.flatnonzero(np.asarray(keep))
    if len(taken) == len(lines.places):
        return lines
    rows = pa.array(taken)
    columns = {name: values.take(rows) for name, values in lines.columns.items()}
    return _Lines(lines.places[taken], lines.keys.take(rows), columns)


def _with_templates(
    source: str, settings: ParseSettings, lines: _Lines, texts: Sequence[_Text]
) -> tuple[_Lines, list[Template]]:
    """The lines of wordings that have templates, whose numbers then stand for keys."""
    encoded = lines.keys.dictionary_encode()
    codes = np.asarray(encoded.indices)
    counts = np.bincount(codes, minlength=len(encoded.dictionary))
    known: list[Template] = []
    numbers = np.full(len(counts), -1, np.int64)
    of = templates(source, settings)
    for code in np.argsort(-counts, kind="stable")[:_MOST_WORDINGS].tolist():
        if counts[code] < FEWEST_ALIKE:
            break
        template = of.of(_wording(encoded.dictionary[code].as_py(), texts))
        if template is not None:
            numbers[code] = len(known)
            known.append(template)
    mine = numbers[codes]
    return _where(lines._replace(keys=pa.array(mine)), pa.array(mine >= 0)), known


def _timed(source: str, records: pa.RecordBatch, settings: ParseSettings, lines: _Lines) -> _Lines:
    """The lines whose time is one, with those times in column `when`."""
    hosts = lines.columns["host"].dictionary_encode()
    zones = [settings.zone(source, host) for host in hosts.dictionary.to_pylist()]
    arrivals = records.column("received_at").cast(pa.timestamp("us", "UTC"))
    times = times_of_lines(
        lines.columns["time"], arrivals.take(pa.array(lines.places)), zones, hosts.indices
    )
    timed = lines._replace(columns=lines.columns | {"when": times})
    return timed if not times.null_count else _where(timed, times.is_valid())


def _events(
    source: str,
    records: pa.RecordBatch,
    settings: ParseSettings,
    lines: _Lines,
    known: Sequence[Template],
) -> pa.RecordBatch:
    mine = records.take(pa.array(lines.places))
    values = lines.columns | {"record": mine.column("record_id").cast(pa.string())}
    # All of one shape, or `to_arrow` would put those of a shape together.
    names = list(dict.fromkeys(name for template in known for name in template.row))
    rows = to_arrow([{name: template.row.get(name) for name in names} for template in known])
    filled = Filled(known, np.asarray(lines.keys), values)
    columns = {
        name: filled.column(rows.column(name), name)
        for name in rows.schema.names
        if rows.column(name).null_count < len(known)
    }
    columns["time"] = lines.columns["when"]
    columns["scope"] = _scopes(source, settings, lines.columns["host"], columns.get("relay_ip"))
    return batch_of(len(lines.places), columns | record_columns(mine, source))


def _scopes(
    source: str, settings: ParseSettings, hosts: pa.Array, relays: pa.Array | None
) -> pa.Array:
    if relays is None or relays.null_count == len(relays):
        return looked_up(hosts, lambda host: settings.scope(host, source), pa.string())
    # Neither can hold the blank between them.
    both = pc.binary_join_element_wise(hosts, pc.fill_null(relays, ""), " ")
    return looked_up(both, lambda pair: _scope(source, settings, *pair.split(" ")), pa.string())


def _scope(source: str, settings: ParseSettings, host: str, relay: str) -> str | None:
    return settings.scope(host, source, relay or None)
