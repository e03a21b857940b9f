"""Access lines of nginx and Apache read many at once equal those read one by one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.edge_records import NOT_ACCESS, nginx
from ingest.parsing.source import lookup
from ingest.sources.web import access_columns
from tests.ingest.columnar import SETTINGS, agree, records, texts_in
from tests.ingest.logs import lines
from tests.ingest.sources.web import test_apache, test_nginx, test_weblogs

SOURCES = ("nginx", "apache")
LINE = "{client} - {user} [{time}] {request} {code} {size}{more}"
USUAL = {
    "client": "10.77.0.101",
    "user": "-",
    "time": "20/Nov/2026:21:50:34 -0500",
    "request": '"GET /index.html?q=1 HTTP/1.1"',
    "code": "200",
    "size": "153",
    "more": r' "-" "Mozilla/5.0 \x22quoted\x22"',
}
# Of each part first those that are read at once.
PLAIN = {
    "client": ("10.77.0.101", "2001:DB8::1", "::ffff:10.0.0.5", "fe80::1", "255.255.255.255"),
    "user": ("-", "anna", "a.b@example.org", "--", "-x", "_"),
    "time": (
        "20/Nov/2026:21:50:34 -0500",
        "29/Feb/2028:00:00:00 +0000",
        "31/Dec/2026:23:59:59 +1400",
        "01/Jan/1999:00:00:00 -0000",
    ),
    "request": (
        '"GET / HTTP/1.1"',
        '"POST /a%20b?q=%22x%22 HTTP/2.0"',
        '"HEAD //other.example/..;/x HTTP/1.0"',
        '"PROPFIND /a#b?c=d?e#f HTTP/3"',
        '"GET /? HTTP/1.1"',
        '"GET /?? HTTP/1.1"',
        '"GET /x?# HTTP/1.1"',
        '"GET /#?a HTTP/1.1"',
        '"X /${jndi:ldap://a}/<script>\'[] HTTP/9.9"',
        '"TRACE /HTTP/1.1 HTTP/1.1"',
        '"OPTIONS /?u=http://a@b:99999/x HTTP/1.1"',
    ),
    "code": ("200", "101", "304", "404", "499", "500", "599"),
    "size": ("153", "0", "-", "007", "999999999999999999"),
    "more": (
        "",
        ' "-" "-"',
        ' "" ""',
        ' "-" "curl/7.88" "-"',
        r' "https://a.example/x?y=z#w" "Mozilla/5.0 (X11; [x]) \x22quoted\x22 \xd0\x9f \\"',
        r' "\x2d" "\x2d"',
        r' "\x00\xe2\x80\xae" "\xff \n \t"',
        ' "GET / HTTP/1.1" "] [x] 200 5"',
    ),
}
ODD = {
    "client": (
        "10.0.0.01", "256.1.1.1", "host.example", "a.example:80 10.0.0.1", "dead.beef", "-", "",
        "1.2.3.4, 5.6.7.8", "fe80::1%eth0", "[2001:db8::1]", "unix:", "Nov 21 10:00:00 h nginx:",
    ),
    "user": ("", "ann smith", "CORP\\\\anna", "a] \\x22", "[x", '""', "caf\u00e9", "%u"),
    "time": (
        "30/Feb/2026:00:00:00 +0000", "20/Nov/2026:24:00:00 +0000", "20/Nov/2026:23:59:60 +0000",
        "20/Xxx/2026:21:50:34 +0000", "00/Nov/2026:21:50:34 +0000", "20/Nov/1899:21:50:34 +0000",
        "20/Nov/9999:23:59:59 -0100", "20/Nov/2026:21:50:34.5 +0000", "20/Nov/2026:21:50:34 +2400",
        "20/Nov/2026:21:50:34", "2026-11-20T21:50:34Z", "1795255200",
        "20/Nov/0000:21:50:34 +0000", "20/Nov/2026:21:50:34 -2359",
    ),
    "request": (
        '"GET /a b HTTP/1.1"', '"GET / HTTP/1.1 HTTP/1.1"', '"CONNECT /x HTTP/1.1"',
        '"CONNECT a.example:443 HTTP/1.1"', '"GET http://a.example/x HTTP/1.1"', '"-"', '""',
        '"GET /"', '"get / HTTP/1.1"', '"GET /\\x22 HTTP/1.1"', '"GET /\\" HTTP/1.1"',
        '"\\x16\\x03\\x01"', '"GET  / HTTP/1.1"', '"GET * HTTP/1.1"', '"GET /caf\u00e9 HTTP/1.1"',
        f'"{"G" * 33} / HTTP/1.1"', f'"GET /{"x" * 9000} HTTP/1.1"', '"GET /"x" HTTP/1.1"',
        '"GET /\x7f HTTP/1.1"', '"GET /\t HTTP/1.1"',
    ),
    "code": ("000", "-", "600", "099", "20", "2000", "2x0", ""),
    "size": ("9223372036854775808", "9223372036854775807", "-1", "", "1 2", "5.5"),
    "more": (
        ' "-"', ' "http://a.example/"', ' "-" "ua" "5.5.5.5"', ' "-" "ua" "a.example"',
        ' "-" "ua" 0.005', ' "-" "ua" "-" rt=0.1', ' "-" "a\\"b"', ' "-" "a\\"', ' "-" "a"b"',
        ' "-" "caf\u00e9"', " ", '  "-" "ua"', ' "-" "ua" ', ' "-" "ua"\r\n', ' "-" "ua" 12',
        ' 1/1234 "-" "ua"', ' "-" "ua" "" ""', ' "-" "\x01"',
    ),
}  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def _however_few() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(access_columns, "FEWEST_LINES", 1)
        yield


def line(**parts: str) -> bytes:
    return LINE.format(**USUAL | parts).encode()


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("folder", ["dhcpd", "dnsmasq", "kea"])
def test_real_logs_are_read_at_once(source: str, folder: str) -> None:
    raws = lines(f"lab/{folder}/nginx_access.log")
    assert agree(source, raws) == len(raws)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("part", PLAIN)
def test_every_usual_part_is_read_at_once(source: str, part: str) -> None:
    raws = [line(**{part: text}) for text in PLAIN[part]]
    assert agree(source, raws) == len(raws)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("part", ODD)
def test_every_odd_part_is_read_alike_among_plain_lines(source: str, part: str) -> None:
    raws = [line(**{part: text}) for text in ODD[part]]
    assert agree(source, [line(), *raws, line()]) >= 2


@pytest.mark.parametrize("source", SOURCES)
def test_spoiled_lines_are_left(source: str) -> None:
    raws = [spoil(nginx().make(3)[1]) for spoil in NOT_ACCESS.values()]
    assert agree(source, raws) == 0


def _texts() -> list[bytes]:
    """What the row readers' tests read, whole or behind the start that they share."""
    texts = sorted(texts_in(test_apache, test_nginx, test_weblogs))
    return [(start + text).encode() for text in texts for start in ("", test_nginx.HEAD)]


_TEXTS = _texts()


@pytest.mark.parametrize("source", SOURCES)
def test_every_line_of_the_row_readers_tests_is_read_alike(source: str) -> None:
    assert agree(source, _TEXTS) >= 5


def _drawn(data: st.DataObject) -> bytes:
    odd = data.draw(st.integers(0, 2))
    return line(
        **{
            part: data.draw(st.sampled_from(texts + (ODD[part] if odd == 2 else ())))
            for part, texts in PLAIN.items()
        }
    )


@pytest.mark.parametrize("source", SOURCES)
@given(data=st.data())
def test_lines_of_any_parts_are_read_alike(source: str, data: st.DataObject) -> None:
    agree(source, [_drawn(data) for _ in range(data.draw(st.integers(1, 4)))])


def _changed(data: st.DataObject, line: bytes) -> bytes:
    raw = bytearray(line)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(raw)))
        raw[place : place + data.draw(st.integers(0, 3))] = data.draw(
            st.one_of(
                st.binary(max_size=3),
                st.sampled_from([b'"', b"\\", b" ", b'] "', b"\n", b"?", b"#", b"[", b'" "']),
            )
        )
    return bytes(raw)


@pytest.mark.full
@pytest.mark.parametrize("source", SOURCES)
@given(data=st.data())
def test_lines_with_any_bytes_changed_are_read_alike(source: str, data: st.DataObject) -> None:
    texts = st.sampled_from(_TEXTS)
    raws = [_changed(data, _drawn(data)) for _ in range(data.draw(st.integers(1, 3)))]
    agree(source, [*raws, _changed(data, data.draw(texts))])


@pytest.mark.full
@pytest.mark.parametrize("source", SOURCES)
@given(
    target=st.text("/?#:@%&=.;\\\"' ax1[]", max_size=12),
    agent=st.text('\\"xX0d9fF-/ []=nt', max_size=16),
)
def test_any_targets_and_agents_are_read_alike(source: str, target: str, agent: str) -> None:
    agree(source, [line(request=f'"GET /{target} HTTP/1.1"', more=f' "-" "{agent}"'), line()])


def test_a_sender_in_a_header_is_left_to_the_row_reader() -> None:
    batch = records("nginx", [line()], [{"key": "host", "value": b"web-1"}])
    read = lookup("nginx").columns(batch, SETTINGS)
    assert read is not None
    assert read.events is None
    assert read.left == [0]
