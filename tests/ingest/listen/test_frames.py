"""Messages of a stream: any split of the bytes gives the same, and nothing of them is lost."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.config.listen_section import SyslogFraming
from ingest.listen.frames import Frame, Framer
from tests.examples import examples

LONGEST = 16


def read(pieces: Sequence[bytes], framing: SyslogFraming = "auto", cut: str = "") -> list[Frame]:
    framer = Framer(LONGEST, framing)
    frames = [frame for piece in pieces for frame in framer.feed(piece)]
    return frames + framer.end(cut)


def slow_lines(data: bytes) -> list[tuple[bytes, bool]]:
    """Lines, and whether each is whole, told in the plainest way."""
    result = []
    for line in data.split(b"\n"):
        parts = [line[i : i + LONGEST] for i in range(0, len(line), LONGEST)]
        if len(parts) == 1 and not line.strip(b"\r"):
            continue
        result += [
            (part, len(parts) == 1) for part in parts if len(parts) == 1 or part.strip(b"\r")
        ]
    return result


def slow_counted(data: bytes) -> list[tuple[bytes, bool]]:
    """Messages after their lengths, of a stream in which nothing is broken."""
    result = []
    while data := data.lstrip(b"\r\n"):
        count, _, data = data.partition(b" ")
        message, data = data[: int(count)], data[int(count) :]
        parts = [message[i : i + LONGEST] for i in range(0, len(message), LONGEST)]
        result += [(part, len(parts) == 1) for part in parts]
    return result


STREAM = st.lists(
    st.one_of(
        st.sampled_from([b"\n", b"\r\n", b"<1>", b"12 <1>", b"5 <1>ab", b"3 ", b"0", b" "]),
        st.binary(max_size=40),
    ),
    max_size=12,
).map(b"".join)
FRAMINGS: st.SearchStrategy[SyslogFraming] = st.sampled_from(["auto", "octets", "lines"])
MESSAGE = st.binary(max_size=60).map(lambda text: b"<1>" + text)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


@examples(300)
@given(STREAM, st.lists(st.integers(0, 500), max_size=8), FRAMINGS)
def test_any_split_of_the_bytes_gives_the_same_messages(
    data: bytes, places: list[int], framing: SyslogFraming
) -> None:
    whole = read([data], framing)
    assert read(cut(data, places), framing) == whole
    assert read([data[i : i + 1] for i in range(len(data))], framing) == whole


@examples(200)
@given(STREAM)
def test_lines_equal_those_of_a_slow_reader(data: bytes) -> None:
    assert [(f.data, not f.refused) for f in read([data], "lines")] == slow_lines(data)


@examples(200)
@given(st.lists(st.tuples(MESSAGE, st.sampled_from([b"", b"\n", b"\r\n"])), min_size=1, max_size=6))
def test_counted_messages_equal_those_of_a_slow_reader(messages: list[tuple[bytes, bytes]]) -> None:
    data = b"".join(b"%d %b%b" % (len(text), text, end) for text, end in messages)
    expected = slow_counted(data)
    for framing in ("auto", "octets"):
        assert [(f.data, not f.refused) for f in read([data], framing)] == expected  # type: ignore[arg-type]


@examples(200)
@given(STREAM, st.sampled_from(["octets", "lines"]))
def test_no_byte_is_lost_but_line_ends_and_lengths(data: bytes, framing: SyslogFraming) -> None:
    frames = read([data], framing)
    assert all(len(frame.data) <= LONGEST for frame in frames)
    place = 0
    for frame in frames:
        found = data.find(frame.data, place)
        assert found >= 0
        assert not data[place:found].strip(b"\r\n0123456789 ")
        place = found + len(frame.data)
    assert not data[place:].strip(b"\r\n0123456789 ")


@pytest.mark.parametrize("size", [LONGEST - 1, LONGEST, LONGEST + 1, 3 * LONGEST, 3 * LONGEST + 1])
def test_what_is_too_long_is_kept_in_parts_with_the_reason(size: int) -> None:
    text = b"x" * size
    for data, framing in ((text + b"\n", "lines"), (b"%d %b" % (size, text), "octets")):
        frames = read([data], framing)  # type: ignore[arg-type]
        assert b"".join(frame.data for frame in frames) == text
        assert all(bool(frame.refused) == (size > LONGEST) for frame in frames)
        assert all(str(LONGEST) in frame.refused for frame in frames if frame.refused)


def test_a_connection_of_lines_takes_no_number_for_a_length() -> None:
    # Else a line begun with a number would swallow those behind it.
    frames = read([b"<1>a\n999 <1>b\n<1>c\n"])
    assert frames == [Frame(b"<1>a"), Frame(b"999 <1>b"), Frame(b"<1>c")]
    assert read([b"2026 no length\n"])[0].refused == ""


def test_after_a_broken_length_the_next_line_is_read_again() -> None:
    frames = read([b"4 <1>abroken\n4 <1>b"])
    assert [frame.data for frame in frames] == [b"<1>a", b"broken", b"<1>b"]
    assert [bool(frame.refused) for frame in frames] == [False, True, False]


def test_what_a_broken_connection_leaves_is_no_whole_message() -> None:
    assert read([b"<1>half"], cut="the connection broke") == [
        Frame(b"<1>half", "the connection broke")
    ]
    assert read([b"<1>last line without its end"[:LONGEST]])[0].refused == ""
    [frame] = read([b"9 <1>ab"])
    assert frame.data == b"<1>ab"
    assert "ended" in frame.refused
