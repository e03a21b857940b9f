"""Reports made for a caller by `headgate report run`, as the command line makes them."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from api.auth import Caller
from api.services.act_store import new_id
from api.services.runs.command_runs import CommandRuns, no_run
from api.services.triage import NoSuchAct, NotYours
from api.wire import runs as wire
from infra.config.settings import Settings
from infra.config.tenants import listed_tenants
from infra.errors import Fatal, Retryable, Usage
from infra.process.progress import progress_in
from infra.process.subprocesses import CommandResult, run_command

KIND = "report"
_ANSWER_SECONDS = 60.0


class ReportDesk:
    """Has reports made. They are composed in a process of their own: one may take gigabytes.

    `tenants`: whose alone are made and shown; None: all.
    """

    def __init__(
        self, settings: Settings, runs: CommandRuns, tenants: Sequence[str] | None = None
    ) -> None:
        self.tenants = tenants
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
                kinds = [
                    wire.ReportKind(
                        name=row["name"], about=row["about"], of_tenants=bool(row["tenant"])
                    )
                    for row in json.loads(result.printed)
                    if row["what"] == "report"
                ]
                shown = [kind for kind in kinds if kind.of_tenants or self.tenants is None]
                self._kinds = wire.ReportKinds(items=shown)
            return self._kinds

    def make(self, who: str, wanted: wire.ReportWanted) -> wire.ReportRun:
        """Ask for one; raises `Usage` for a name, time, zone or subject that it cannot be of."""
        names = [kind.name for kind in self.kinds().items]
        if wanted.report not in names:
            whose = "" if self.tenants is None else " for a tenant"
            raise Usage(f"no report '{wanted.report}'{whose}; there are {', '.join(names)}")
        tenant = self._tenant(wanted.tenant)
        # With `=`, so that a value that begins with a dash is none of the options.
        options = [f"--interval={wanted.interval}", f"--subject={wanted.subject}"]
        options += [f"--zone={wanted.zone}"] if wanted.zone else []
        options += [f"--tenant={tenant}"] if tenant is not None else []
        options += [f"--format={form}" for form in dict.fromkeys(wanted.formats)]
        command = ("report", "run", wanted.report, *options)
        # Told at once: who asked has left by the time that a run fails.
        checked = self._ask(*command, "--dry-run")
        if checked.code == Usage.exit_code:
            raise Usage(_in_words(checked.sentence))
        if checked.code != 0:
            raise Retryable(f"whether it can be made is not known: {checked.sentence}")
        about: dict[str, Any] = wanted.model_dump(include={"report", "interval", "subject"})
        about |= {"tenant": tenant, "files": [], "progress": None, "step": None}
        file = self._settings.home.absolute() / "api" / f"runs-{KIND}" / f"{new_id()}.progress"
        run = self._runs.submit(
            KIND,
            who,
            about,
            (*command, f"--progress={file}"),
            _files,
            lambda: file.unlink(missing_ok=True),
            partial(progress_in, file),
        )
        return wire.ReportRun.model_validate(_shown(run))

    def get(self, name: str) -> wire.ReportRun:
        """One run; raises `NoSuchAct`."""
        run = wire.ReportRun.model_validate(self._runs.get(KIND, name))
        if not self._shows(run):
            # As of one that there is not: who may not see it does not learn that it is there.
            raise NoSuchAct(no_run(name))
        return run

    def remove(self, caller: Caller, name: str) -> wire.ReportRun:
        """End one that is being made or waits; one that is over leaves the list, its files stay.

        Raises `NoSuchAct`, and `NotYours` for another's unless the caller administers.
        """
        run = self.get(name)
        if run.who != caller.name and not caller.may("admin"):
            raise NotYours(f"run {name} is {run.who}'s; they or an administrator may end it")
        return wire.ReportRun.model_validate(_shown(self._runs.remove(KIND, name, caller.name)))

    def listed(self) -> wire.ReportRuns:
        """Runs of the last days."""
        runs = [wire.ReportRun.model_validate(run) for run in self._runs.listed(KIND)]
        return wire.ReportRuns(items=[run for run in runs if self._shows(run)])

    def _tenant(self, wanted: str | None) -> str | None:
        """Whose report it is to be; raises `Usage` where that is not said or may not be."""
        known = self._settings.tenants
        if self.tenants is None:
            return None if wanted is None else listed_tenants((wanted,), known, "tenant")[0]
        # A key may outlive its tenant, and the command would say which others there are.
        own = [name for name in self.tenants if name in known]
        if wanted is None and len(own) > 1:
            raise Usage(f"tenant: say whose report it is to be: {' or '.join(own)}")
        name = (own or self.tenants)[0] if wanted is None else wanted
        return listed_tenants((name,), own, "tenant")[0]

    def _shows(self, run: wire.ReportRun) -> bool:
        return self.tenants is None or run.tenant in self.tenants

    def _ask(self, *command: str) -> CommandResult:
        return run_command(command, self._settings, threading.Event(), _ANSWER_SECONDS)


def _files(result: CommandResult) -> Mapping[str, Any]:
    if result.code != 0:
        raise Fatal(_in_words(result.sentence) or f"the command ended with {result.code}")
    files = [Path(line).name for line in result.printed.splitlines() if line]
    return {"files": files, "progress": 100.0, "step": None}


def _in_words(sentence: str) -> str:
    """What the command said, of what was asked for and not of its options."""
    return (
        sentence.replace("--interval ", "interval ")
        .replace("--subject", "the subject")
        .replace("--tenant", "tenant")
    )


def _shown(run: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in run.items() if not name.startswith("pid")}
