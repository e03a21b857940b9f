"""What to do about a job that failed: when to start it again, and when a person must look."""

from __future__ import annotations

import re
from dataclasses import dataclass

PAUSES = (1.0, 2.0, 5.0, 15.0, 30.0, 60.0)
STEADY_SECONDS = 120.0
"""A job that ran this long has recovered: its next failure begins again with the first pause."""

_OURS = re.compile(r"infra\.errors\.(\w+): (.+)")
_OUTSIDE = re.compile(
    r"infra\.errors\.Retryable|org\.apache\.kafka\.|java\.net\.|No space left on device"
    r"|the job is being stopped"
    # An object store that does not answer, or not well: to Python's clients and to Hadoop's. An
    # error's name, for the frames of these libraries stand in the trace of any error below them.
    r"|botocore\.exceptions\.\w+|aiohttp\.client_exceptions\.\w+|fs\.s3a\.(?:\w+\.)*\w+Exception"
    r"|software\.amazon\.awssdk\.(?:\w+\.)+\w+Exception"
)
"""Faults of what a job rests on. The same batch may well succeed once they are over."""

_CRASHED = "Python worker exited unexpectedly"
"""Spark's word for a worker that is gone; the causes below it are about a pipe."""
_STARVED = re.compile(rf"{_CRASHED}|^\s*MemoryError\s*$", re.MULTILINE)
"""A worker that was ended or got no memory. It may be the batch, which is too much for it, but more
often the machine has none left for a while, through no fault of any batch."""
STARVED = 5
"""So many times as many of these make a batch poison: half an hour of them, not a minute."""

_DAMAGE = re.compile(r"(?:Checksum error: file:|Failed to read log file |Error reading ).{0,250}")
"""What names a damaged file, somewhere in the text of an error."""

_STATE = re.compile(
    r"STATE_STORE_(?:KEY|VALUE)_SCHEMA_NOT_COMPATIBLE"
    r"|STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA"
)
_STATE_SAID = (
    "its checkpoint holds state of another release, which remembered other columns; go back to "
    "that release, for which the tables are as good as before (job sessions: 'headgate rebuild "
    "sessions')"
)


@dataclass(frozen=True)
class Retry:
    """Start the job again after `seconds`."""

    seconds: float


@dataclass(frozen=True)
class GiveUp:
    """Leave the job stopped; `why` names what a person has to change."""

    why: str
    poison: bool = False
    """Whether a batch failed too often: that holds until a person says otherwise."""


@dataclass
class FailureRecord:
    """The failures of one job in a row."""

    failures: int = 0
    batch: int | None = None
    on_batch: int = 0
    """How often in a row that batch failed by its own fault."""
    starved: int = 0
    """How often of these a worker was ended, or got no memory."""

    def failed(
        self, why: str, batch: int | None, ran_seconds: float, attempts: int
    ) -> Retry | GiveUp:
        """Note a failure and say what follows.

        `why`: what Spark or Python said. `batch`: the one under way, None when there was
        none. `ran_seconds`: since it was started. `attempts`: a batch that failed so
        often by its own fault is poison.
        """
        if fatal := fatal_reason(why):
            return GiveUp(fatal)
        if ran_seconds > STEADY_SECONDS:
            self.failures = 0
        own = batch is not None and not _OUTSIDE.search(why)
        if not own or batch != self.batch:
            self.batch, self.on_batch, self.starved = batch if own else None, 0, 0
        self.on_batch += own
        self.starved += own and _STARVED.search(why) is not None
        if own and self._poison(attempts):
            return GiveUp(
                f"batch {batch} failed {self.on_batch} times in a row: {reason(why)}; "
                "mend what it names, then 'headgate jobs resume' the job",
                poison=True,
            )
        # Longer each time: what is away for a while gains nothing from being asked again at once.
        pause = PAUSES[min(self.failures, len(PAUSES) - 1)]
        self.failures += 1
        return Retry(pause)

    def _poison(self, attempts: int) -> bool:
        clear = self.on_batch - self.starved
        return clear >= attempts or self.on_batch >= attempts * STARVED


def fatal_reason(why: str) -> str | None:
    """The sentence of an error of ours that no retry can help; None for any other."""
    if _STATE.search(why):
        return _STATE_SAID
    match = _OURS.search(why)
    return match.group(2) if match and match.group(1) in ("Fatal", "Usage") else None


def own_error(why: str) -> str | None:
    """The sentence of an error of ours, raised anywhere in a batch; None for any other."""
    return fatal_reason(why) or _sentence(why)


def _sentence(why: str) -> str | None:
    match = _OURS.search(why)
    return match.group(2) if match else None


def reason(text: str) -> str:
    """The line of a Spark or Python error that says what happened."""
    if sentence := _sentence(text):
        return sentence
    if damage := _DAMAGE.search(text):
        return damage.group(0)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if "MemoryError" in lines:  # Python says no more than its name
        return "MemoryError: a Python worker got no memory"
    if _CRASHED in text:
        return "a Python worker ended: it was killed, or the machine had no memory left for it"
    python = [line for line in lines if re.match(r"\w+(?:Error|Exception): ", line)]
    caused = [line for line in lines if line.startswith(("Caused by", "pyspark.", "java."))]
    # The last: below its trace Python says what happened, and Java's deepest cause comes last.
    return (python or caused or lines or ["unknown"])[-1][:300]
