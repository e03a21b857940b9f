"""Reports made for a caller by `headgate report run`, as the command line makes them."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from api.services.runs.command_runs import CommandRuns
from api.wire import runs as wire
from infra.config.settings import Settings
from infra.errors import Fatal, Retryable, Usage
from infra.process.subprocesses import CommandResult, run_command

KIND = "report"
_ANSWER_SECONDS = 60.0


class ReportDesk:
    """Has reports made. They are composed in a process of their own: one may take gigabytes."""

    def __init__(self, settings: Settings, runs: CommandRuns) -> None:
        self._settings = settings
        self._runs = runs
        self._kinds: wire.ReportKinds | None = None
        self._lock = threading.Lock()

    def kinds(self) -> wire.ReportKinds:
        """Reports that there are; asked of the command once, as they do not change while we run."""
        with self._lock:
            if self._kinds is None:
                result = self._ask("report", "list", "--output", "json")
                if result.code != 0:
                    raise Retryable(f"the reports cannot be listed: {result.sentence}")
                rows = [row for row in json.loads(result.printed) if row["what"] == "report"]
                self._kinds = wire.ReportKinds(
                    items=[wire.ReportKind(name=row["name"], about=row["about"]) for row in rows]
                )
            return self._kinds

    def make(self, who: str, wanted: wire.ReportWanted) -> wire.ReportRun:
        """Ask for one; raises `Usage` for a name, time, zone or subject that it cannot be of."""
        names = [kind.name for kind in self.kinds().items]
        if wanted.report not in names:
            raise Usage(f"no report '{wanted.report}'; there are {', '.join(names)}")
        # With `=`, so that a value that begins with a dash is none of the options.
        options = [f"--interval={wanted.interval}", f"--subject={wanted.subject}"]
        options += [f"--zone={wanted.zone}"] if wanted.zone else []
        options += [f"--format={form}" for form in dict.fromkeys(wanted.formats)]
        command = ("report", "run", wanted.report, *options)
        # Told at once: who asked has left by the time that a run fails.
        checked = self._ask(*command, "--dry-run")
        if checked.code == Usage.exit_code:
            raise Usage(_in_words(checked.sentence))
        if checked.code != 0:
            raise Retryable(f"whether it can be made is not known: {checked.sentence}")
        about = {"report": wanted.report, "interval": wanted.interval, "subject": wanted.subject,
                 "files": []}  # fmt: skip
        return wire.ReportRun.model_validate(
            _shown(self._runs.submit(KIND, who, about, command, _files))
        )

    def get(self, name: str) -> wire.ReportRun:
        """One run; raises `NoSuchAct`."""
        return wire.ReportRun.model_validate(self._runs.get(KIND, name))

    def listed(self) -> wire.ReportRuns:
        """Runs of the last days."""
        runs = self._runs.listed(KIND)
        return wire.ReportRuns(items=[wire.ReportRun.model_validate(run) for run in runs])

    def _ask(self, *command: str) -> CommandResult:
        return run_command(command, self._settings, threading.Event(), _ANSWER_SECONDS)


def _files(result: CommandResult) -> Mapping[str, Any]:
    if result.code != 0:
        raise Fatal(_in_words(result.sentence) or f"the command ended with {result.code}")
    return {"files": [Path(line).name for line in result.printed.splitlines() if line]}


def _in_words(sentence: str) -> str:
    """What the command said, of what was asked for and not of its options."""
    return sentence.replace("--interval ", "interval ").replace("--subject", "the subject")


def _shown(run: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in run.items() if not name.startswith("pid")}
