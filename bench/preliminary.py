"""From an event to its preliminary alert, beside its alert, with all jobs on this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from alerts.delivery.topic_listener import Listener, TopicMessage
from bench.event_to_alert import Attack, Load, loaded
from bench.measure import Report, cut
from infra.config.settings import Settings

TOPIC = "alerts.preliminary"
RATES = (0, 10, 500)
"""Events a second besides three or four attacks, each by an address of its own."""
LANES = ("batch", "lane")


@dataclass
class Heard:
    """What came on the topic: by address when it was told, by alert its answers."""

    told_at: dict[str, float] = field(default_factory=dict)
    seen_at: dict[str, float] = field(default_factory=dict)
    alert_of: dict[str, str] = field(default_factory=dict)
    answers: dict[str, list[str]] = field(default_factory=dict)
    twice: int = 0

    def __call__(self, message: TopicMessage) -> None:
        """Note one message."""
        body = message.body
        if "certainty" not in body:
            self.answers.setdefault(body["alert_id"], []).append(body["answer"])
            return
        ip = str(body["attribution"]["ip"])
        self.twice += ip in self.told_at
        self.told_at[ip], self.alert_of[ip] = message.appended_at, body["alert_id"]
        # An append counts only with its transaction, so what a consumer sees is later.
        self.seen_at[ip] = time.time()

    @contextmanager
    def listening(self, settings: Settings) -> Iterator[None]:
        """Hear the topic meanwhile, and behind it until all are answered."""
        kafka = settings.kafka.model_copy(update={"alerts_topic": TOPIC})
        with Listener(settings.model_copy(update={"kafka": kafka}), self):
            yield
            end = time.monotonic() + 60
            while len(self.answers) < len(self.alert_of) and time.monotonic() < end:
                time.sleep(0.5)


def run(quick: bool = False) -> Report:
    """Both lanes at 0, 10 and 500 events/s, two minutes each after a warm-up."""
    report = Report("preliminary", "make bench ONLY=preliminary")
    for lane in LANES:
        early = {
            "HEADGATE_KAFKA__PRELIMINARY_TOPIC": TOPIC,
            "HEADGATE_ALERTS__PRELIMINARY_BY": lane,
        }
        for rate in RATES:
            heard = Heard()
            load = Load(rate, 40 if quick else 120)
            done, cores = loaded(load, environment=early, hearing=heard.listening)
            name = f"{lane}, {rate}/s"
            _tell(report, name, done.attacks, heard)
            report.add(f"{name}: CPU of the driver while measured", [cores], "cores")
    one, five, quarter = os.getloadavg()
    report.notes += [
        "delay: the event's own time, which is when it is sent, to the append time of the message; "
        "alerts beside it are of addresses with a lease or outside, whom nothing waits for",
        f"load averages of the machine's {os.cpu_count()} cores behind it: "
        f"{one:.1f}, {five:.1f}, {quarter:.1f}",
    ]
    return report


def _tell(report: Report, name: str, attacks: dict[str, Attack], heard: Heard) -> None:
    counted = {ip: attack for ip, attack in attacks.items() if attack.counted}
    early = [
        heard.told_at[ip] - each.sent_at for ip, each in counted.items() if ip in heard.told_at
    ]
    seen = [heard.seen_at[ip] - each.sent_at for ip, each in counted.items() if ip in heard.seen_at]
    exact = [
        each.appended_at - each.sent_at
        for each in counted.values()
        if each.appended_at is not None and each.status in ("leased", "outside")
    ]
    for percent in (50, 99):
        report.add(f"{name}: preliminary alert, p{percent}", [cut(early, percent)], "s")
        report.add(f"{name}: seen by a consumer, p{percent}", [cut(seen, percent)], "s")
        report.add(f"{name}: its alert, p{percent}", [cut(exact, percent)], "s")
    came = len(heard.told_at.keys() & attacks.keys())
    report.add(
        f"{name}: told", [came], f"of {len(attacks)}", bar="all, none twice",
        met=came == len(attacks) and not heard.twice,
    )  # fmt: skip
    once = sum(heard.answers.get(alert_id) == ["confirmed"] for alert_id in heard.alert_of.values())
    report.add(
        f"{name}: answered once, confirmed", [once], f"of {len(heard.alert_of)}", bar="all",
        met=once == len(heard.alert_of),
    )  # fmt: skip
