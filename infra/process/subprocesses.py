"""Parts of the platform as processes of their own, which never outlive us."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import IO, Literal

from infra.config.settings import Settings
from infra.errors import Usage
from infra.process.priority import lower_session
from infra.process.text_output import is_text, printable

_PR_SET_PDEATHSIG = 1

LARGEST_LOG = 10 * 1024 * 1024
"""Bytes of `<home>/NAME.log`; then it becomes NAME.log.1, and so on."""
OLD_LOGS = 3
REFUSAL = "headgate:"
"""How a sentence begins that a command says to a person before it ends."""


def die_with_parent() -> None:
    """For `preexec_fn`: Linux ends this child when its parent dies, even by kill -9."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


_command_line: list[str] = []


def register_command_line(module: str) -> None:
    """Make known the module that runs `headgate COMMAND` with `python -m`."""
    _command_line[:] = [sys.executable, "-m", module]


def command_line(settings: Settings, *command: str) -> list[str]:
    """The words that run `headgate COMMAND` on this home; settings come by file and environment,
    as this process had them."""
    return [*_command_line, "--home", str(settings.home.absolute()), *command]


class PlatformProcess:
    """`headgate COMMAND` as a process, its words kept in `<home>/NAME.log`."""

    def __init__(
        self,
        name: str,
        command: tuple[str, ...],
        settings: Settings,
        *,
        config: Path | None = None,
        environment: Mapping[str, str] | None = None,
        on_line: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.name = name
        self.log = settings.home.absolute() / f"{name}.log"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        # Made here, as the handler would make it with whatever the umask allows.
        self.log.touch(mode=0o600)
        options = ["--home", str(settings.home.absolute())]
        if config is not None:
            options = ["--config", str(config.absolute()), *options]
        self.process = subprocess.Popen(
            [*_command_line, *options, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            # What we were given beside the file, such as the ports of the demo, goes along as
            # variables, which win over it.
            env=os.environ
            | {
                "HEADGATE_KAFKA__BOOTSTRAP": settings.kafka.bootstrap,
                "HEADGATE_API__PORT": str(settings.api.port),
                **(environment or {}),
            },
            # A Ctrl-C in the terminal is ours to handle; the part is told to end in order.
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
        self._refusals: list[str] = []
        self._reader = threading.Thread(target=self._read, args=(on_line,), daemon=True)
        self._reader.start()

    @property
    def ended(self) -> int | None:
        """Its exit code, None while it runs."""
        return self.process.poll()

    def last_words(self, lines: int = 3) -> str:
        """The end of its log; of an ended process, all it said is in there."""
        if self.ended is not None:
            self._reader.join(5)
        message = self.log.read_text("utf-8", "replace").splitlines() if self.log.exists() else []
        return " ".join(message[-lines:])[:600]

    def refusals(self) -> list[str]:
        """The sentences of ours that all it said ends with, once it has ended."""
        self._reader.join(5)
        return list(self._refusals)

    def kill(self) -> None:
        """End it as a power cut would, its JVM and workers with it."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(20)

    def stop(self, seconds: float = 45.0) -> None:
        """End it in order, and by force when it does not go."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.kill()
        self._reader.join(5)

    def _read(self, on_line: Callable[[str], None]) -> None:
        # What it says lies there while it runs: a full disk must not stop it at a full pipe,
        # and RotatingFileHandler goes on after a line that it could not write.
        log = RotatingFileHandler(
            self.log, maxBytes=LARGEST_LOG, backupCount=OLD_LOGS, encoding="utf-8"
        )
        with closing(log):
            for line in self.process.stdout or ():
                if line.startswith(REFUSAL):
                    self._refusals.append(line.rstrip())
                else:
                    # Only what it says last, before it ends, is why it ended.
                    self._refusals.clear()
                log.emit(logging.makeLogRecord({"msg": line.rstrip("\n")}))
                on_line(line.rstrip())


@dataclass(frozen=True)
class CommandResult:
    """What a command came to: its exit code, what it printed, and the last it said on stderr."""

    code: int
    printed: str
    sentence: str


def run_command(
    command: tuple[str, ...],
    settings: Settings,
    stop: threading.Event,
    seconds: float,
    each_second: Callable[[], None] = lambda: None,
) -> CommandResult:
    """Run `headgate COMMAND` to its end, apart from this process's memory.

    It is ended, as failed, when `stop` is set or after `seconds`; it ends with this thread.
    """
    # Files and not pipes: what it prints may be larger than a pipe holds, and nobody reads yet.
    with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as words:
        code, over = run_into(
            command, settings, printed, words, stop, seconds, each_second=each_second
        )
        printed.seek(0)
        words.seek(0)
        lines = words.read().decode("utf-8", "replace").splitlines()
        last = (refusals_in(lines) or [line for line in lines if line.strip()] or [""])[-1]
        sentence = {"cancelled": over, "late": f"ended after {seconds:g} s"}.get(over, last)
        return CommandResult(code, printed.read().decode("utf-8", "replace"), sentence)


def require_text(command: Sequence[str]) -> None:
    """Raises `Usage` for a word that no command line can have; a caller over REST may have sent it
    as a value."""
    for word in command:
        if not is_text(word):
            name, _, value = word.lstrip("-").partition("=")
            printed = f"{printable(name[:80])} {printable(value[:200])}".strip()
            raise Usage(f"{printed}: has a NUL or half a character; leave that out")


Over = Literal["", "cancelled", "late"]
"""Why a command was ended from outside; empty: it ended itself."""


def run_into(
    command: Sequence[str],
    settings: Settings,
    printed: IO[bytes],
    words: IO[bytes],
    stop: threading.Event,
    seconds: float,
    *,
    nice: int = 0,
    each_second: Callable[[], None] = lambda: None,
) -> tuple[int, Over]:
    """Run `headgate COMMAND` to its end, stdout into `printed`, stderr into `words`: its exit code.

    It is ended when `stop` is set, after `seconds`, and with this thread; whatever it began goes
    with it. `nice`: how far it stands back for other processes.
    """

    def prepare() -> None:
        die_with_parent()
        os.nice(nice)
        # Its session is a new one, and nice counts within one only.
        lower_session(nice)

    require_text(command)
    process = subprocess.Popen(
        command_line(settings, *command),
        stdin=subprocess.DEVNULL,
        stdout=printed,
        stderr=words,
        start_new_session=True,
        preexec_fn=prepare,
    )
    began = looked = time.monotonic()
    over: Over = ""
    try:
        while not over and process.poll() is None:
            if stop.wait(0.1):
                over = "cancelled"
            elif time.monotonic() - began > seconds:
                over = "late"
            elif time.monotonic() - looked >= 1.0:
                looked = time.monotonic()
                each_second()
    finally:
        # With its JVM and workers, which may outlive the command; the group may be gone already.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(20)
    return process.returncode, over


def refusals_in(lines: Iterable[str]) -> list[str]:
    """Sentences of ours among what a command said: they say why, what a JVM says before does not.
    """  # fmt: skip
    return [line.removeprefix(REFUSAL).strip() for line in lines if line.startswith(REFUSAL)]
