"""How far a report is that is being made: told on a terminal, and to who waits for it over REST.

It is made of questions and of files. How many questions a report has its module says, or else is
known once it was made here: reports of one name have about as many.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

from infra.config.settings import Settings
from infra.errors import HeadgateError
from infra.process.log import say
from infra.process.progress import Tell
from infra.storage.state_file import StateFile


@dataclass
class QuestionCounts:
    """`by_report`: how many questions the last one of each name had."""

    by_report: dict[str, int] = field(default_factory=dict)


class MakingProgress:
    """Counts what of a report is done. `files`: how many are to be written; `questions`: how many
    it asks, as far as that is known before one was made here."""

    def __init__(
        self,
        settings: Settings,
        name: str,
        files: int,
        tell: Tell,
        questions: int | None = None,
    ) -> None:
        self._file = _counts(settings)
        self._name, self._files, self._tell = name, files, tell
        known = self._file.read_or(QuestionCounts(), say).by_report
        self._questions = known.get(name, questions)
        self._asked = 0

    def asks(self) -> None:
        """One more question is asked."""
        self._asked += 1
        total = self._questions
        # More questions than the last one had: it is nearly through, and no more is known.
        done = None if total is None else min(self._asked - 1, total - 1)
        of = "" if total is None else f" of about {total}"
        self._tell(
            f"question {self._asked}{of}", done, None if total is None else total + self._files
        )

    def answered(self) -> None:
        """All is asked: what comes are the files."""
        counts = self._file.read_or(QuestionCounts(), say).by_report
        if self._asked and counts.get(self._name) != self._asked:
            # It only helps the next one; a disk that is full says so where it matters.
            with suppress(HeadgateError, OSError):
                self._file.write(QuestionCounts(counts | {self._name: self._asked}))
        self._tell("writing its files", self._asked, self._asked + self._files)


def _counts(settings: Settings) -> StateFile[QuestionCounts]:
    return StateFile(
        settings.home.absolute() / "report-questions.json",
        QuestionCounts,
        remedy="it is written anew with the next report",
    )
