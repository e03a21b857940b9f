"""16 users who search while all jobs run under a load: what an event waits for its alert then."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx

from bench.event_to_alert import SEED, WARM_SECONDS, Attack, Load, Run, loaded
from bench.measure import Report, cpu_seconds, cut
from infra.config.settings import Settings, load
from infra.kafka.client import free_port
from infra.process.subprocesses import PlatformProcess

USERS = 16
PAUSE = 1.0
"""Seconds between an answer and the user's next question."""
TOKEN = "the-token-of-those-who-search"
MOST_SECONDS = 60.0
STATEMENT = """SELECT class_uid, count(*) AS n, max(time) AS newest FROM silver.events
WHERE source = 'zeek:dns' AND time >= '{since}' GROUP BY class_uid"""


@dataclass(frozen=True)
class Turns:
    """Turns of `seconds`: one alone, two with those who search, one alone.

    A driver that still catches up with its start is then no slower in one kind than in the other.
    """

    seconds: int
    settling: int
    """Seconds of each turn that are not counted: what waits then came in the turn before."""

    def searched(self, second: float) -> bool:
        """Whether somebody searches, so many seconds after the load began."""
        return second >= WARM_SECONDS and int(second - WARM_SECONDS) // self.seconds % 4 in (1, 2)

    def counts(self, second: float) -> bool:
        """Whether what was sent then is counted."""
        return (second - WARM_SECONDS) % self.seconds >= self.settling


@dataclass
class Searches:
    """What the users asked and how long it took, by question."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)
    waited: int = 0
    """How often a statement was told to come again."""
    began: float = 0.0
    """When the load began, epoch seconds."""
    cores: list[float] = field(default_factory=list)
    """Cores that the API used in each turn that was searched."""
    lock: threading.Lock = field(default_factory=threading.Lock)


def search_beside(report: Report, quick: bool) -> None:
    """Tell the wait with and without the users; both in one run, turn by turn."""
    turns = Turns(20, 5) if quick else Turns(90, 15)
    searches = Searches()

    @contextmanager
    def users(settings: Settings) -> Iterator[None]:
        with _users(settings, turns, searches):
            yield

    done, cores = loaded(Load(200, 80) if quick else Load(500, 360), beside=users)
    _tell(report, done, searches, turns)
    report.add("beside full load: CPU of the driver", [cores], "cores")
    if searches.cores:
        report.add("beside full load: CPU of the API while searched", searches.cores, "cores")


@contextmanager
def _users(settings: Settings, turns: Turns, searches: Searches) -> Iterator[None]:
    """An API of its own process, and its users while the load is sent."""
    served = load(home=settings.home, api={"port": free_port()})
    environment = {"HEADGATE_API__TOKEN": TOKEN, "HEADGATE_API__PORT": str(served.api.port)}
    api = PlatformProcess("api", ("api",), settings, environment=environment)
    address = f"http://127.0.0.1:{served.api.port}"
    ended = threading.Event()
    threads = [
        threading.Thread(target=_work, args=(number, address, turns, searches, ended), daemon=True)
        for number in range(USERS)
    ]
    threads.append(threading.Thread(target=_watch, args=(api, turns, searches, ended), daemon=True))
    try:
        _await(address, api)
        searches.began = time.time()
        for thread in threads:
            thread.start()
        yield
    finally:
        ended.set()
        for thread in threads:
            if thread.ident is not None:
                thread.join(MOST_SECONDS)
        api.stop()


def _await(address: str, api: PlatformProcess, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and api.ended is None:
        try:
            # Not /readyz: that is red while a job is late, and how late it is we measure.
            if httpx.get(f"{address}/healthz", timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.5)
    raise AssertionError(f"the API does not answer: {api.last_words(10)}")


def _work(
    number: int, address: str, turns: Turns, searches: Searches, ended: threading.Event
) -> None:
    """One user: a question, its answer, a look at it, the next question."""
    chance = random.Random(SEED + number)
    with httpx.Client(base_url=address, timeout=MOST_SECONDS) as client:
        admin = {"Authorization": f"Bearer {TOKEN}"}
        wanted = {"name": f"analyst-{number}", "role": "analyst"}
        made = client.post("/api/v1/keys", json=wanted, headers=admin)
        assert made.status_code == 201, made.text
        key = made.json()["token"]
        client.headers["Authorization"] = f"Bearer {key}"
        signed_in = client.post("/login", data={"key": key}, follow_redirects=False)
        assert signed_in.status_code == 303, signed_in.text
        while not ended.wait(PAUSE * chance.uniform(0.5, 1.5)):
            if not turns.searched(time.time() - searches.began):
                continue
            name, question = _question(client, chance)
            began = time.monotonic()
            try:
                status = client.send(question).status_code
                # Two statements run at once, the others are told when to come again.
                while status == httpx.codes.TOO_MANY_REQUESTS and not ended.wait(PAUSE):
                    searches.waited += 1
                    status = client.send(question).status_code
                problem = "" if status == httpx.codes.OK else f"{name}: {status}"
            except httpx.HTTPError as error:
                problem = f"{name}: {type(error).__name__}"
            with searches.lock:
                if problem:
                    searches.refused[problem] += 1
                else:
                    searches.seconds.setdefault(name, []).append(time.monotonic() - began)


def _question(client: httpx.Client, chance: random.Random) -> tuple[str, httpx.Request]:
    """What a user asks, by a name."""
    address = f"10.9.{10 + chance.randrange(3)}.{chance.randrange(1, 250)}"
    hour = time.strftime("%Y-%m-%d %H:00:00", time.gmtime(time.time() - 3600))
    statement = STATEMENT.format(since=hour)
    name, method, path, more = chance.choice(
        (
            ("events by address", "GET", "/search", {"q": address, "since": "-1h"}),
            ("events by filter", "GET", "/search", {"f": "source=zeek:dns", "since": "-15m"}),
            ("a statement", "POST", "/api/v1/statements?wait_seconds=20", {"sql": statement}),
            ("a timeline", "GET", f"/api/v1/entities/ip/{address}", {"since": "-1h"}),
            ("alerts by text", "GET", "/api/v1/alerts", {"q": address}),
        )
    )
    if method == "POST":
        return name, client.build_request(method, path, json=more)
    return name, client.build_request(method, path, params=more)


def _watch(api: PlatformProcess, turns: Turns, searches: Searches, ended: threading.Event) -> None:
    """What the API uses in each turn that is searched."""
    used, since, before = 0.0, 0.0, False
    while not ended.wait(0.5):
        searched = turns.searched(time.time() - searches.began)
        if searched and not before:
            used, since = cpu_seconds(api.process.pid), time.monotonic()
        elif before and not searched:
            now = cpu_seconds(api.process.pid)
            searches.cores.append((now - used) / (time.monotonic() - since))
        before = searched


def _tell(report: Report, done: Run, searches: Searches, turns: Turns) -> None:
    known = [each for each in done.attacks.values() if each.status in ("leased", "outside")]
    alone = _waits(known, searches.began, turns, searched=False)
    beside = _waits(known, searches.began, turns, searched=True)
    for percent, most in ((50, 5.0), (99, 10.0)):
        quiet, busy = cut(alone, percent), cut(beside, percent)
        report.add(f"event to alert alone, p{percent}", [quiet], "s")
        report.add(
            f"event to alert, {USERS} users searching, p{percent}", [busy], "s",
            compared_with="alone", ratio=busy / quiet, bar=f"<= {most:.0f} s", met=busy <= most,
        )  # fmt: skip
    for name, seconds in sorted(searches.seconds.items()):
        if len(seconds) > 1:
            report.add(f"searched beside full load: {name}, p50", [cut(seconds, 50)], "s")
            report.add(f"searched beside full load: {name}, p95", [cut(seconds, 95)], "s")
    answered = sum(len(each) for each in searches.seconds.values())
    refused = searches.refused.total()
    report.add(
        "searches refused or not answered", [float(refused)], f"of {answered + refused}",
        bar="0", met=refused == 0,
    )  # fmt: skip
    report.add("searches told to come again", [float(searches.waited)], f"of {answered + refused}")
    report.notes += [
        f"beside full load: {done.load.per_second} events/s through all jobs; turns of "
        f"{turns.seconds} s without and with {USERS} users, the first {turns.settling} s of each "
        f"not counted; {len(alone)} alerts alone, {len(beside)} while searched; a user asks "
        f"{PAUSE:.0f} s after the answer before; broker, jobs, API, users and sender on this "
        "machine",
    ]
    if refused:
        report.notes.append(f"refused: {dict(searches.refused.most_common(5))}")


def _waits(attacks: Sequence[Attack], began: float, turns: Turns, *, searched: bool) -> list[float]:
    """From event to alert, of the attacks of these turns that count."""
    return [
        each.appended_at - each.sent_at
        for each in attacks
        if each.counted
        and each.appended_at is not None
        and turns.counts(each.sent_at - began)
        and turns.searched(each.sent_at - began) == searched
    ]
