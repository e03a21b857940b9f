"""Lines of web and name servers, damaged in every way: events that are valid, or a reason."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import examples
from tests.ingest.conforms import faults, misfits
from tests.ingest.logs import rows
from tests.ingest.sources.dns import test_bind
from tests.ingest.sources.dns import test_unbound as test_ub
from tests.ingest.sources.web import test_apache, test_haproxy, test_iis, test_nginx, test_squid

LINES = {
    "nginx": [line for line, _ in test_nginx.ACCESS] + test_nginx.HOSTILE,
    "nginx_error": [line for line, _ in test_nginx.ERRORS],
    "apache": [line for line, _ in test_apache.ACCESS] + test_apache.HOSTILE,
    "apache_error": [line for line, _ in test_apache.ERRORS],
    "haproxy": [line for line, _ in test_haproxy.LINES],
    "squid": [line for line, _ in test_squid.LINES],
    "iis": [line for line, _ in test_iis.BARE],
    "bind": [line for line, _ in test_bind.LINES],
    "unbound": [line for line, _ in test_ub.LINES],
}
PIECES = (
    '"',
    " ",
    "[",
    "]",
    ":",
    "-",
    "99999",
    "::1",
    "\\",
    "\\x00",
    "?",
    "{",
    "@",
    "#",
    "\n",
    "(",
)


@pytest.mark.parametrize("source", sorted(LINES))
@examples(60)
@given(data=st.data())
def test_a_damaged_line_gives_valid_events_or_a_reason(source: str, data: st.DataObject) -> None:
    line = data.draw(st.sampled_from(LINES[source]))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(line)))
        gone = data.draw(st.integers(0, 12))
        line = line[:at] + data.draw(st.sampled_from(PIECES)) + line[at + gone :]
    for row in rows(source, line.encode()):
        why = row.get("dead_letter_reason")
        assert why is None or not why.startswith("parser ")
        if why is None:
            assert not faults(row), faults(row)
            assert not misfits(row), misfits(row)


def test_any_line_is_read_in_the_time_of_its_length() -> None:
    """Parts that patterns repeat over, a hundred thousand characters of them."""
    heads = {
        "nginx": test_nginx.HEAD + '"GET / HTTP/1.1" 200 1 ',
        "apache": test_nginx.HEAD,
        "nginx_error": "2026/11/21 10:00:00 [error] 12#13: *5 ",
        "apache_error": "[Sat Nov 21 10:00:00 2026] [error] [client 1.2.3.4] ",
        "haproxy": test_haproxy.START,
        "squid": test_squid.START,
        "bind": test_bind.WHEN + test_bind.CLIENT,
        "unbound": test_ub.OWN + "info: ",
    }
    for source, head in heads.items():
        for piece in ('"x ', '\\"', " [", "a=b ", ', client: 1.2.3.4, server: _, request: "'):
            found = rows(source, (head + piece * (100_000 // len(piece))).encode())
            assert len(found) == 1
