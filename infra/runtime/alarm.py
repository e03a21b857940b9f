"""Says that a job gets nowhere by another way than a job: the platform's own silence is loud.

`headgate status`, `/readyz` and the metric `headgate_job_up` say at once what misses its target;
somebody has to ask them. Who only reads alerts would take their absence for peace. So the driver
itself looks, in a thread of its own, and has what packages registered tell it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from infra.config.settings import Settings
from infra.errors import HeadgateError
from infra.process.log import News, say
from infra.runtime import job_status
from infra.storage.state_file import StateFile

LOOK_SECONDS = 5.0


@dataclass(frozen=True)
class Stuck:
    """A job that gets nowhere: since when (epoch seconds), and why.

    `held_back`: it makes progress, and what it writes is not handed on.
    """

    job: str
    since: float
    why: str
    held_back: bool = False


Tell = Callable[[Sequence[Stuck]], None]
"""Is given all jobs that are stuck now, again and again; tells what is new, and what is over."""

_TELLERS: list[Callable[[Settings], Tell]] = []


def register_alarm(teller: Callable[[Settings], Tell]) -> None:
    """Have a package tell of jobs that get nowhere."""
    _TELLERS.append(teller)


def stuck_jobs(
    verdicts: Sequence[job_status.JobVerdict],
    since: Mapping[str, float],
    now: float,
    patience: float,
) -> tuple[dict[str, float], list[Stuck]]:
    """Since when each job misses its target, and those of which it is time to tell.

    `since`: what this gave last. One that was stopped for good does not come again by itself: of
    it there is nothing to wait for. One that a person ended is no trouble.
    """
    missing: dict[str, float] = {}
    stuck = []
    for verdict in verdicts:
        status = verdict.status
        ended = status is not None and status.state == "stopped"
        if verdict.missed is None or ended:
            continue
        missing[verdict.job] = since.get(verdict.job, now)
        failed = status is not None and status.state == "failed"
        if failed or now - missing[verdict.job] >= patience:
            stuck.append(
                Stuck(verdict.job, missing[verdict.job], verdict.missed, verdict.held_back)
            )
    return missing, stuck


@dataclass
class Alarm:
    """Looks at the jobs of a home every few seconds, and has it told which get nowhere."""

    settings: Settings
    jobs: Callable[[], Sequence[str]]
    tell: Callable[[str], None] = say
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _known: str = ""

    def __post_init__(self) -> None:
        """Since when a job misses its target is kept: drivers may come and go meanwhile."""
        folder = self.settings.home.absolute() / "status"
        remedy = "it is written anew: what is stuck counts as stuck from now on"
        self._file = StateFile(folder / "missing" / "jobs.json", dict[str, float], remedy)
        self._tellers = [make(self.settings) for make in _TELLERS]
        self._news = News(self.tell)

    def start(self) -> Alarm:
        """Begin."""
        self._thread = threading.Thread(target=self._run, name="alarm", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """End, once what is being told is out."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(40)

    def _run(self) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            self.look()

    def look(self) -> None:
        """Look once. What cannot be sent now is sent at the next look."""
        try:
            stuck = self._stuck(time.time())
            names = ", ".join(each.job for each in stuck)
            if names and names != self._known:
                misses = "misses its target" if len(stuck) == 1 else "miss their targets"
                self.tell(f"alarm: {names} {misses}: {stuck[0].why}")
            self._known = names
            for tell in self._tellers:
                tell(stuck)
            self._news.over()
        except (HeadgateError, OSError) as error:
            self._news.tell(f"alarm: cannot be sent now: {error}")

    def _stuck(self, now: float) -> list[Stuck]:
        # A damaged one must not keep the alarm silent: what is stuck counts from now.
        before = self._file.read_or(None, self._news.tell)
        verdicts = job_status.judge_jobs(
            self.settings, self.jobs(), job_status.read_status(self.settings), now
        )
        # A time ahead is of a clock that was wrong.
        since = {job: min(first, now) for job, first in (before or {}).items()}
        after, stuck = stuck_jobs(verdicts, since, now, self.settings.targets.alarm_seconds)
        if after != before:
            self._file.write(after)
        return stuck
