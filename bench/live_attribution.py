"""From a finding to whose address it was, with all jobs running, Kafka to gold.attribution."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow.parquet as pq

from alerts.tables import FINDING
from bench.event_to_alert import RULE, Attack, Load, loaded
from bench.measure import Report, cut
from bench.plot import bars, panel
from enrich.tables import ATTRIBUTION
from infra.config.settings import Settings, load
from infra.delta.log_reader import commit, versions
from infra.delta.schema import Table
from infra.delta.time_travel import Committed

BARS = {"leased": {50: 3.0, 95: 6.0}, "none": {50: 45.0, 95: 45.0}}
SAID = {"leased": "lease known", "none": "no lease"}


@dataclass
class Seen:
    """When each finding's row was committed, and when the first word on its address was."""

    addresses: dict[str, str] = field(default_factory=dict)
    """Address that attacked, by finding."""
    found_at: dict[str, float] = field(default_factory=dict)
    said_at: dict[str, float] = field(default_factory=dict)
    status: dict[str, str] = field(default_factory=dict)

    def read(self, settings: Settings) -> None:
        """Take the instants from the tables' logs: a reader can see a row from its commit on."""

        def finding(row: dict[str, Any], at: float) -> None:
            if row["rule_title"] == RULE and row["ip"]:
                self.addresses[row["finding_id"]] = row["ip"]
                self.found_at.setdefault(row["finding_id"], at)

        def attribution(row: dict[str, Any], at: float) -> None:
            self.said_at.setdefault(row["finding_id"], at)
            self.status.setdefault(row["finding_id"], row["holder"]["status"])

        _each(settings, FINDING, ["finding_id", "rule_title", "ip"], finding)
        _each(settings, ATTRIBUTION, ["finding_id", "holder"], attribution)


def run(quick: bool = False) -> Report:
    """500 events/s for 5 minutes after a warm-up, as in event_to_alert."""
    report = Report("live_attribution", "make bench ONLY=live_attribution")
    seen = Seen()
    done, cores = loaded(Load(200, 60) if quick else Load(500, 300), seen.read)
    _tell(report, done.attacks, seen)
    report.add("CPU of the driver while measured", [cores], "cores")
    if not quick:
        bars(report, {"finding to attributed finding, seconds": panel(report, "s")})
    jobs = load().jobs
    report.notes += [
        f"{done.load.per_second} events/s for {done.load.seconds} s after a warm-up; one broker, "
        "one driver with all jobs and its default settings, and the sender, all on this machine",
        "finding: commit of its row in gold.finding; attributed: commit of the first row in "
        "gold.attribution that names it; both by the time of the commit file",
        f"jobs.watermark_seconds = {jobs.watermark_seconds}, jobs.wait_seconds = "
        f"{jobs.wait_seconds}: a finding waits so long in arrival time before 'none' is said; DHCP "
        f"lines may be {jobs.allowed_lateness_seconds} s late",
    ]
    return report


def _tell(report: Report, attacks: dict[str, Attack], seen: Seen) -> None:
    finding_of = {address: uid for uid, address in seen.addresses.items()}
    unsaid = [ip for ip in attacks if seen.said_at.get(finding_of.get(ip, "")) is None]
    if unsaid:
        raise AssertionError(f"{len(unsaid)} findings have no attribution, such as {unsaid[0]}'s")
    counted = {finding_of[ip]: attack for ip, attack in attacks.items() if attack.counted}
    for status, words in SAID.items():
        mine = {uid: attack for uid, attack in counted.items() if attack.status == status}
        waits = [seen.said_at[uid] - seen.found_at[uid] for uid in mine]
        whole = [seen.said_at[uid] - attack.sent_at for uid, attack in mine.items()]
        for percent, bar in BARS[status].items():
            value = cut(waits, percent)
            name = f"{words}, finding to attributed finding, p{percent}"
            report.add(name, [value], "s", bar=f"<= {bar:.0f} s", met=value <= bar)
        for percent in BARS[status]:
            name = f"{words}, event sent to attributed finding, p{percent}"
            report.add(name, [cut(whole, percent)], "s")
        report.notes.append(f"timed, {words}: {len(mine)} findings")
    other = [uid for uid, attack in counted.items() if seen.status[uid] != attack.status]
    report.add(
        "first words with another status than expected", [len(other)], f"of {len(counted)}",
        bar="0", met=not other,
    )  # fmt: skip


def _each(
    settings: Settings,
    table: Table,
    columns: list[str],
    take: Callable[[dict[str, Any], float], None],
) -> None:
    """Every row of a table, oldest first, with the instant of its commit, seconds since 1970."""
    folder = settings.lake_root / table.path
    when = Committed(folder)
    for version in versions(folder):
        at = when.of(version).timestamp()
        for name in commit(folder, version).adds:
            for row in pq.read_table(folder / name, columns=columns).to_pylist():
                take(row, at)
