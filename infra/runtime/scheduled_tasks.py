"""Commands beside the jobs, as processes of their own: again and again, or all the time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from infra.config.settings import Settings
from infra.process.log import SAME_AGAIN, News
from infra.process.subprocesses import PlatformProcess


class Every:
    """Runs `headgate COMMAND` every so many minutes, never twice at once; the first time after one.

    What it says goes to `<home>/NAME.log`; what it is named to fail with, to `tell`, and the same
    once more after `again` seconds. It ends with us, in the middle of a run if need be. `wait`
    says why a run is left out, if it is.
    """

    def __init__(
        self,
        name: str,
        command: tuple[str, ...],
        minutes: float,
        settings: Settings,
        tell: Callable[[str], None],
        wait: Callable[[], str] = lambda: "",
        again: float = SAME_AGAIN,
    ) -> None:
        self.name = name
        self._command = command
        self._seconds = minutes * 60
        self._settings = settings
        self._news = News(tell, again)
        self._tell = tell
        self._wait = wait
        self._stop = threading.Event()
        # The child dies with the thread that starts it, so that one lives as long as we do.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> Every:
        """Begin; nothing runs at 0 minutes."""
        if self._seconds > 0:
            self._thread.start()
        return self

    def stop(self) -> None:
        """End, with the run that is under way."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(30)

    def _run(self) -> None:
        while not self._stop.wait(self._seconds):
            if why := self._wait():
                self._tell(f"{self.name}: not now, {why}")
            else:
                self._once()

    def _once(self) -> None:
        try:
            part = PlatformProcess(self.name, self._command, self._settings)
        except OSError as error:
            self._tell(f"{self.name}: could not be started ({error}); again in due time")
            return
        while part.ended is None:
            if self._stop.wait(0.5):
                part.stop(5)
                return
        # Our commands end with 0 or 1 by themselves, and with 1 they have said why.
        if part.ended not in (0, 1):
            self._news.tell(f"{self.name}: ended with {part.ended}: {part.last_words()}")
        elif refusals := part.refusals():
            self._news.tell(f"{self.name}: {' '.join(refusals)}")
        else:
            self._news.over()


_PAUSES = (1.0, 2.0, 5.0, 15.0, 60.0)
_LONG_ENOUGH = 300.0
"""Seconds after which a process that ends counts as one that had worked."""


class Steady:
    """Keeps `headgate COMMAND` running beside the jobs; started again, after growing pauses, when
    it ends. What it says goes to `<home>/NAME.log`, that it ended to `tell`."""

    def __init__(
        self,
        name: str,
        command: tuple[str, ...],
        settings: Settings,
        tell: Callable[[str], None],
        pauses: Sequence[float] = _PAUSES,
    ) -> None:
        self.name = name
        self._command = command
        self._settings = settings
        self._news = News(tell)
        self._pauses = pauses
        self._stop = threading.Event()
        # The child dies with the thread that starts it, so that one lives as long as we do.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> Steady:
        """Begin."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """End, the process in order."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(60)

    def _run(self) -> None:
        ended = 0
        while not self._stop.is_set():
            began = time.monotonic()
            self._once()
            # One that worked for a while begins with the shortest pause again.
            ended = 1 if time.monotonic() - began > _LONG_ENOUGH else ended + 1
            self._stop.wait(self._pauses[min(ended, len(self._pauses)) - 1])

    def _once(self) -> None:
        try:
            part = PlatformProcess(self.name, self._command, self._settings)
        except OSError as error:
            self._news.tell(f"{self.name}: could not be started ({error}); trying on")
            return
        while part.ended is None:
            if self._stop.wait(0.2):
                part.stop()
                return
        why = " ".join(part.refusals()) or part.last_words()
        self._news.tell(f"{self.name}: ended with {part.ended}: {why}; started again")


def _never() -> str:
    return ""


@dataclass(frozen=True)
class ScheduledCommand:
    """A command that a package wants to run beside the jobs; see `Every`."""

    name: str
    command: tuple[str, ...]
    minutes: Callable[[Settings], float]
    """How often by the settings; 0: not at all."""
    wait: Callable[[], str] = _never
    again: float = SAME_AGAIN


_SCHEDULED: dict[str, ScheduledCommand] = {}


def register_schedule(*commands: ScheduledCommand) -> None:
    """Make commands known that run again and again while job ingest does."""
    _SCHEDULED.update({command.name: command for command in commands})


@dataclass(frozen=True)
class SteadyCommand:
    """A command that a package wants to run all the time beside the jobs; see `Steady`."""

    name: str
    command: tuple[str, ...]
    wanted: Callable[[Settings], bool]


_STEADY: dict[str, SteadyCommand] = {}


def register_steady(*commands: SteadyCommand) -> None:
    """Make commands known that run as long as job ingest does."""
    _STEADY.update({command.name: command for command in commands})


def scheduled_commands(settings: Settings, tell: Callable[[str], None]) -> list[Every | Steady]:
    """All that the settings want, not yet begun."""
    steady = [
        Steady(each.name, each.command, settings, tell)
        for each in _STEADY.values()
        if each.wanted(settings)
    ]
    return [
        *steady,
        *(
            Every(each.name, each.command, minutes, settings, tell, each.wait, each.again)
            for each in _SCHEDULED.values()
            if (minutes := each.minutes(settings)) > 0
        ),
    ]
