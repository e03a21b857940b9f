"""A broker, a driver that is killed and started again, and waiting for what it does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from headgate.demo.check import demo_counts
from infra.config.settings import Settings
from infra.process.subprocesses import PlatformProcess
from tests import wait
from tests.recovery import judge

PACE = {
    "HEADGATE_ALERTS__COUNT_EVERY_SECONDS": "1",
    # What a budget holds back depends on how batches fall, and those differ between two runs.
    "HEADGATE_ALERTS__HOURLY_BUDGET": "1000000",
    "HEADGATE_JOBS__WAIT_SECONDS": "5",
    "HEADGATE_JOBS__WATERMARK_SECONDS": "2",
    "HEADGATE_JOBS__REPAIR_TRIGGER_SECONDS": "10",
}


@contextmanager
def driver(
    settings: Settings, environment: Mapping[str, str] | None = None
) -> Iterator[PlatformProcess]:
    """`headgate up` over the settings' home, ended at the end if it was not killed before."""
    where = {} if settings.lake is None else {"HEADGATE_LAKE": str(settings.lake)}
    part = PlatformProcess(
        "driver", ("up",), settings, environment={**PACE, **where, **(environment or {})}
    )
    try:
        yield part
    finally:
        if part.ended is None:
            part.stop()


def batches(settings: Settings, job: str = "ingest") -> int:
    """How many batches of a job Spark has noted as done."""
    return count(settings.checkpoint_root / job / "spark" / "commits", "[0-9]*")


def count(folder: Path, pattern: str) -> int:
    """How many files there have been: of numbered ones Spark keeps only the newest."""
    if not folder.is_dir():
        return 0
    names = [path.name for path in folder.glob(pattern)]
    numbers = [int(name) for name in names if name.isdigit()]
    return max(numbers) + 1 if numbers else len(names)


def until(part: PlatformProcess, true: Callable[[], bool], seconds: float = 150) -> None:
    """Wait until it holds, while the driver lives; asked often, to be there when it begins."""
    wait.until(true, part, seconds=seconds, pause=0.002)


def settle(settings: Settings, part: PlatformProcess, sent: int, seconds: float = 480) -> None:
    """Wait until all that was sent is through and the numbers rest."""
    end = time.monotonic() + wait.PATIENCE * seconds
    done_at, last, quiet = time.time(), None, time.monotonic()
    while True:
        assert part.ended is None, part.last_words(20)
        assert time.monotonic() < end, f"not settled: {last}; {part.last_words(20)}"
        time.sleep(1.5)
        if not (settings.lake_root / "gold" / "alert_action" / "_delta_log").is_dir():
            continue
        now = demo_counts(settings, sent, [], None, done_at)
        if now.moving != last:
            last, quiet = now.moving, time.monotonic()
        if now.through and time.monotonic() - quiet > 8 and last["records"] >= sent:
            return


def complaints(settings: Settings, accepted: Mapping[judge.Place, bytes]) -> list[str]:
    """What an independent judge finds wrong with input, tables and topics."""
    lake, bootstrap = settings.lake_root, settings.kafka.bootstrap
    messages = judge.topic(bootstrap, settings.kafka.alerts_topic)
    states = judge.topic(bootstrap, settings.kafka.state_topic)
    return [
        *judge.lost_or_doubled_records(lake, dict(accepted)),
        *judge.nameless_records(lake),
        *judge.doubled_findings(lake),
        *judge.unattributed_findings(lake),
        *judge.doubled_attributions(lake),
        *judge.wrong_on_topic(lake, messages),
        *judge.wrong_states(messages, states),
    ]
