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

from ingest.parsing.source import ParseSettings, Read
from ingest.parsing.vectorized import IPV4 as ONE_IPV4
from ingest.parsing.vectorized import (
    Mask,
    batch_of,
    looked_up,
    only_where,
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

# As wide as an expression asks in few steps, for pyarrow makes each anew for every batch; what is
# too wide is found afterwards (`_narrow`).
IPV4 = r"\d+\.\d+\.\d+\.\d+"
PORT = r"[1-9]\d*"
MAC = r"[0-9a-f][0-9a-f](?::[0-9a-f][0-9a-f]){5}"
USER = r"[a-z_][a-z0-9_-]*"

_ISO = r"\d\d\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)"
_BSD = r"[A-Z][a-z][a-z] (?: \d|[1-9]\d) \d\d:\d\d:\d\d"
_HOST = r"(?P<host>[A-Za-z][\w.-]*)"
_PROGRAM, _PID = r"(?P<program> [a-z][a-z_-]+)", r"(?P<pid>(?:[1-9]\d*)?)"
_TEXT = r"(?P<text>[^\x00\n]+)"
# In the order of the line; what is not named after a mask stays. Bounds are looked at afterwards,
# because a repetition that is bounded makes RE2 three times as slow.
_HEADERS = (
    rf"^(?P<before>(?:<\d+>)?)(?P<time>{_BSD}|{_ISO}) {_HOST}"
    rf"{_PROGRAM}(?P<b>\[?){_PID}(?P<c>\]?: +){_TEXT}$",
    rf"^(?P<before><\d+>1 )(?P<time>{_ISO}) {_HOST}"
    rf"{_PROGRAM}(?P<b> ){_PID}(?P<c>-? - - +){_TEXT}$",
)
_LONGEST_OF = {"before": 8, "pid": 7, "program": 32, "host": 200}
_HOSTS = re.compile(r"[A-Za-z][\w-]{0,62}(\.[\w-]{1,62})*", re.ASCII)
# A host of few capitals may be taken for the clock's zone.
_CAPITALS = re.compile(r"[^a-z]{1,5}")
_LONGEST_WHOLE = 400
"""Bytes of a text that is compared as it is."""
_LONGEST_USER = 32
# A word of the reader's own, taken for a name, could make it read another pattern.
_NO_NAMES = pa.array(
    ["invalid", "illegal", "user", "from", "for", "port", "by", "authenticating", "unknown"]
)


class _Text(NamedTuple):
    """How what follows the header may be worded, as an expression whose groups all have names."""

    expression: str
    stays: tuple[str, ...]
    masks: tuple[str, ...]


_AS_IT_IS = _Text("", ("s0",), ())
"""Of nothing else do words alone tell what differs, so whole texts are compared."""


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
    latter named after masks; the first that fits a line is the line's. A text that fits none is
    compared as it is.
    """
    texts = (*map(_text, wordings), _AS_IT_IS)
    return lambda records, settings: _read_alike(source, records, settings, texts)


def _read_alike(
    source: str, records: pa.RecordBatch, settings: ParseSettings, texts: Sequence[_Text]
) -> Read:
    rows = records.num_rows
    if rows < FEWEST_LINES:
        return Read(None, list(range(rows)))
    lines = _worded(_headed(plain_texts(records, _LONGEST)), texts)
    lines, line_templates = _with_templates(source, settings, lines, texts)
    if line_templates:
        lines = _timed(source, records, settings, lines)
    if not line_templates or not len(lines.places):
        return Read(None, list(range(rows)))
    return read_of(_events(source, records, settings, lines, line_templates), rows, lines.places)


# -- what stays and what differs -------------------------------------------------------------------


def _headed(whole: pa.Array) -> _Lines:
    """The lines with a known header; their keys are what stays in it, parted by NUL."""
    left = np.arange(len(whole))
    parts: list[_Lines] = []
    for form, header in enumerate(_HEADERS):
        read = pc.extract_regex(whole if form == 0 else whole.take(pa.array(left)), header)
        columns = dict(zip((field.name for field in read.type), read.flatten(), strict=True))
        sound = np.asarray(pc.fill_null(_sound(columns, form), False))
        if sound.any():
            columns = _taken(columns, np.flatnonzero(sound))
            # A month stands behind digits.
            clock = pc.if_else(pc.less(columns["time"], "A"), "iso", "bsd")
            stays = [columns.pop(name) for name in ("before", "program", "b", "c")]
            keys = pc.binary_join_element_wise(clock, *stays, "\x00")
            parts.append(_Lines(left[sound], keys, columns))
        left = left[np.asarray(read.is_null())]
    return _joined(parts)


def _joined(parts: Sequence[_Lines]) -> _Lines:
    if not parts:
        return _Lines(np.zeros(0, np.int64), pa.array([], pa.string()), {})
    if len(parts) == 1:
        return parts[0]
    names = dict.fromkeys(name for part in parts for name in part.columns)
    return _Lines(
        np.concatenate([part.places for part in parts]),
        pa.concat_arrays([part.keys for part in parts]),
        {
            name: pa.concat_arrays(
                [
                    part.columns[name]
                    if name in part.columns
                    else pa.nulls(len(part.places), pa.string())
                    for part in parts
                ]
            )
            for name in names
        },
    )


def _taken(columns: dict[str, pa.Array], places: npt.NDArray[np.int64]) -> dict[str, pa.Array]:
    rows = pa.array(places)
    return {name: values.take(rows) for name, values in columns.items()}


def _sound(columns: dict[str, pa.Array], form: int) -> pa.Array:
    """Which headers are as narrow as they must be."""
    sound = looked_up(columns["host"], _is_host, pa.bool_())
    for name, longest in _LONGEST_OF.items():
        sound = pc.and_(sound, pc.less_equal(pc.binary_length(columns[name]), longest))
    # A number in brackets, or neither: RE2 cannot say that one group needs another.
    number = pc.greater(pc.binary_length(columns["pid"]), 0)
    opened, closed = columns["b"], columns["c"]
    if form == 0:
        paired = pc.and_(
            pc.equal(pc.equal(opened, "["), number), pc.equal(pc.starts_with(closed, "]"), number)
        )
    else:
        paired = pc.not_equal(pc.starts_with(closed, "-"), number)
    return pc.and_(sound, paired)


def _is_host(name: str) -> bool:
    return bool(_HOSTS.fullmatch(name)) and not _CAPITALS.fullmatch(name)


def _worded(headed: _Lines, texts: Sequence[_Text]) -> _Lines:
    """The lines whose text is worded in a known way, text by text."""
    rows = np.arange(len(headed.places))
    parts: list[_Lines] = []
    for number, each in enumerate(texts):
        if not len(rows):
            break
        text = headed.columns["text"]
        groups, fits = _groups(text if not parts else text.take(pa.array(rows)), each)
        if not fits.any():
            continue
        groups, mine = _taken(groups, np.flatnonzero(fits)), rows[fits]
        keys = pc.binary_join_element_wise(
            f"{number}", headed.keys.take(pa.array(mine)), *(groups[name] for name in each.stays),
            "\x00",
        )  # fmt: skip
        parts.append(_Lines(mine, keys, {name: groups[name] for name in each.masks}))
        rows = rows[~fits]
    lines = _joined(parts)
    return lines._replace(
        places=headed.places[lines.places],
        columns=lines.columns | _taken(headed.columns, lines.places),
    )


def _groups(text: pa.Array, of: _Text) -> tuple[dict[str, pa.Array], Mask]:
    """The groups of texts, and which of them fit."""
    if of is _AS_IT_IS:
        fits = pc.less_equal(pc.binary_length(text), _LONGEST_WHOLE)
        return {"s0": text}, np.asarray(fits)
    read = pc.extract_regex(text, of.expression)
    groups = dict(zip((field.name for field in read.type), read.flatten(), strict=True))
    return groups, np.asarray(read.is_valid())


def _narrow(columns: dict[str, pa.Array]) -> Mask:
    """Which lines have for each mask what the row reader treats like any other."""
    narrow = np.ones(len(columns["host"]), np.bool_)
    for name, values in columns.items():
        if name in ("ip", "ip2"):
            fits = pc.match_substring_regex(values, f"^{ONE_IPV4}$")
        elif name == "port":
            short = only_where(pc.less_equal(pc.binary_length(values), 5), values)
            fits = pc.less_equal(short.cast(pa.int32()), 65535)
        elif name == "user":
            short = pc.less_equal(pc.binary_length(values), _LONGEST_USER)
            fits = pc.and_(short, pc.invert(pc.is_in(values, _NO_NAMES)))
        else:
            continue
        narrow &= np.asarray(pc.or_(values.is_null(), pc.fill_null(fits, False)))
    return narrow


def _wording(key: str, texts: Sequence[_Text]) -> Wording:
    """The wording of which `_keys` made a text."""
    number, form, before, program, opened, closed, *stays = key.split("\x00")
    masks = texts[int(number)].masks
    head: tuple[str, ...] = (before, " ", program + opened + closed)
    named: tuple[str, ...] = ("time", "host")
    # Without a number the brackets around it are empty as well.
    if opened == "[" or (opened == " " and not closed.startswith("-")):
        head, named = (before, " ", program + opened, closed), ("time", "host", "pid")
    return Wording(form, head, tuple(stays), (*named, *masks))


# -- their events ----------------------------------------------------------------------------------


def _where(lines: _Lines, keep: Mask) -> _Lines:
    taken = np.flatnonzero(keep)
    if len(taken) == len(lines.places):
        return lines
    rows = pa.array(taken)
    return _Lines(lines.places[taken], lines.keys.take(rows), _taken(lines.columns, taken))


def _with_templates(
    source: str, settings: ParseSettings, lines: _Lines, texts: Sequence[_Text]
) -> tuple[_Lines, list[Template]]:
    """The lines of wordings that have templates, whose numbers then stand for keys."""
    if not len(lines.places):
        return lines, []
    narrow = _narrow(lines.columns)
    encoded = lines.keys.dictionary_encode()
    codes = np.asarray(encoded.indices)
    counts = np.bincount(codes[narrow], minlength=len(encoded.dictionary))
    line_templates: list[Template] = []
    numbers = np.full(len(counts), -1, np.int64)
    of = templates(source, settings)
    for code in np.argsort(-counts, kind="stable")[:_MOST_WORDINGS].tolist():
        if counts[code] < FEWEST_ALIKE:
            break
        template = of.of(_wording(encoded.dictionary[code].as_py(), texts))
        if template is not None:
            numbers[code] = len(line_templates)
            line_templates.append(template)
    mine = numbers[codes]
    return _where(lines._replace(keys=pa.array(mine)), (mine >= 0) & narrow), line_templates


def _timed(source: str, records: pa.RecordBatch, settings: ParseSettings, lines: _Lines) -> _Lines:
    """The lines whose time is one, with those times in column `when`."""
    hosts = lines.columns["host"].dictionary_encode()
    zones = [settings.zone(source, host) for host in hosts.dictionary.to_pylist()]
    arrivals = records.column("received_at").cast(pa.timestamp("us", "UTC"))
    times = times_of_lines(
        lines.columns["time"], arrivals.take(pa.array(lines.places)), zones, hosts.indices
    )
    timed = lines._replace(columns=lines.columns | {"when": times})
    return timed if not times.null_count else _where(timed, np.asarray(times.is_valid()))


def _events(
    source: str,
    records: pa.RecordBatch,
    settings: ParseSettings,
    lines: _Lines,
    line_templates: Sequence[Template],
) -> pa.RecordBatch:
    whence = record_columns(records, source, lines.places)
    values = lines.columns | {"record": whence["record_ids"].values}
    together, rows = templates(source, settings).rows_of(line_templates)
    number_of = {id(template): number for number, template in enumerate(together)}
    numbers = np.array([number_of[id(template)] for template in line_templates])
    filled = Filled(together, numbers[np.asarray(lines.keys)], values)
    columns = {
        name: filled.column(rows.column(name), name)
        for name in rows.schema.names
        if rows.column(name).null_count < len(together)
    }
    columns["time"] = lines.columns["when"]
    columns["scope"] = _scopes(source, settings, lines.columns["host"], columns.get("relay_ip"))
    return batch_of(len(lines.places), columns | whence)


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
