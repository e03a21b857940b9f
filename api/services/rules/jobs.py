"""Previews and backtests as jobs: each is the command itself, in a process that can be ended."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from alerts.backtest.progress import backtest_progress
from alerts.rulebook.preview import uncounted
from alerts.rulebook.rule_texts import DRAFT_FILE, check_text, require_good
from alerts.rulepack.rule_pack import ModelRule
from alerts.tuning.threshold_file import threshold_rule
from api.auth import Caller
from api.observability.audit_log import audit_request
from api.services.act_store import new_id
from api.services.rules.desk import RuleDesk
from api.services.searches.job_store import JobStore, result_gone
from api.wire.rules import NewRuleJob, RuleJob
from infra.config.settings import Settings
from infra.errors import Usage
from infra.process.subprocesses import refusals_in, run_into

_MOST_WAITING = 5
LONGEST_BACKTEST = timedelta(hours=1)
"""A longer one is for the command; the same wish then goes on where this one ended."""
_LARGEST_RESULT = 16 << 20
_RESULT, _WORDS = "result.json", "words.log"
_PACK = re.compile(r"[0-9a-f]{32}")
_NICE = 10


@dataclass(frozen=True)
class _Wish:
    """What a process is started for; `text` becomes a file beside its result."""

    verb: str
    options: tuple[str, ...]
    rule_id: str
    text: str | None
    seconds: float
    progress: Callable[[str], float | None]


class RuleJobs(JobStore[RuleJob]):
    """The previews and backtests of a home; one runs at a time, beside the jobs of the lake."""

    def __init__(self, settings: Settings, desk: RuleDesk) -> None:
        super().__init__(
            settings,
            RuleJob,
            "rule-jobs",
            noun="rule job",
            most_waiting=_MOST_WAITING,
            # It tells of itself each second.
            longest=60.0,
        )
        self._settings = settings
        self._desk = desk

    def submit(self, caller: Caller, asked: NewRuleJob, *, wait: float = 0.0) -> RuleJob:
        """Ask; as far as it is after `wait` seconds. Raises `Usage` before anything is started."""
        rule_id, title = self._subject(asked)
        wanted_run = self._wish(asked, rule_id)
        now = datetime.now(UTC)
        job = RuleJob(
            id=new_id(), state="queued", progress=None, who=caller.name, made_at=now,
            expires_at=now + timedelta(seconds=asked.ttl_seconds), problem=None, kind=asked.kind,
            rule_id=rule_id, title=title, draft=asked.text is not None, since=asked.since,
            until=asked.until, against=asked.against, elapsed_ms=None,
        )  # fmt: skip
        return self._begin(caller, job, partial(self._run, wanted_run), wait)

    def listed(self, caller: Caller) -> list[RuleJob]:
        """The caller's jobs, newest first; an administrator sees everybody's."""
        return self._mine(caller)

    def result(self, caller: Caller, name: str) -> dict[str, Any]:
        """What a job that is done came to, as the command's JSON."""
        _, file = self._done(caller, name, _RESULT)
        try:
            result: dict[str, Any] = json.loads(file.read_bytes())
        except FileNotFoundError:
            raise result_gone() from None
        return result

    def _subject(self, asked: NewRuleJob) -> tuple[str, str]:
        if (asked.rule is None) == (asked.text is None):
            raise Usage("say either rule, which is in force, or text, a draft")
        if asked.text is not None:
            checked = check_text(self._settings, asked.text, tests=False)
            require_good(checked)
            rule, *others = uncounted(checked.rules)
            if others:
                raise Usage(f"the text holds {len(checked.rules)} rules; try one at a time")
        else:
            rule = self._desk.source(asked.rule or "").rule
        if isinstance(rule, ModelRule):
            raise Usage(
                f"'{rule.title}' is a rule of kind model, which judges hours: headgate rules "
                f"{asked.kind} {rule.name or rule.id}"
            )
        if asked.kind == "thresholds":
            if asked.rule is None:
                raise Usage("thresholds are of a rule in force; leave text out")
            threshold_rule(self._settings, rule.id)
        return rule.id, rule.title

    def _wish(self, asked: NewRuleJob, rule_id: str) -> _Wish:
        since = asked.since.astimezone(UTC)
        if asked.kind != "backtest":
            if asked.until is not None or asked.against is not None:
                raise Usage("until and against go with a backtest")
            options: tuple[str, ...] = ("--since", since.isoformat(), "--summary")
            if asked.kind == "preview":
                options += ("--limit", str(asked.limit))
            seconds = self._settings.api.job_seconds
            return _Wish(asked.kind, options, rule_id, asked.text, seconds, lambda _: None)
        until = (asked.until or datetime.now(UTC)).astimezone(UTC)
        if since >= until:
            raise Usage("since: not before until")
        options = ("--from", since.isoformat(), "--to", until.isoformat(), "--output", "json")
        if asked.against is not None:
            options += ("--against", self._other(asked.against))
        progress = partial(backtest_progress, self._settings, since=since)
        seconds = LONGEST_BACKTEST.total_seconds()
        return _Wish("backtest", options, rule_id, asked.text, seconds, progress)

    def _other(self, name: str) -> str:
        # A pack that a backtest may be held against goes by its hash; all else names a rule.
        if name == "current" or _PACK.fullmatch(name):
            return name
        return self._desk.source(name).rule.id

    def _run(self, wanted_run: _Wish, job: RuleJob, cancelled: threading.Event) -> None:
        detail = {"job": job.id, "kind": job.kind, "draft": job.draft}
        audit_request(
            self._settings, "rule.job", "ok", who=job.who, target=job.rule_id, detail=detail
        )
        began = time.monotonic()
        job = job.model_copy(update={"state": "running"})
        self._keep(job)
        folder = self._folder / job.id
        # Never a name that was sent: where a file lies under it, the command would read that.
        subject = wanted_run.rule_id if wanted_run.text is None else str(folder / DRAFT_FILE)
        try:
            if wanted_run.text is not None:
                Path(subject).write_bytes(wanted_run.text.encode("utf-8"))
            problem = self._work(wanted_run, subject, job, cancelled)
        except OSError as error:
            problem = f"it could not be run ({error.strerror})"
        state = "cancelled" if cancelled.is_set() else "failed" if problem else "done"
        update = {
            "state": state,
            "problem": problem,
            "elapsed_ms": (time.monotonic() - began) * 1e3,
        }
        if state == "done":
            update["progress"] = 100.0
        self._keep(job.model_copy(update=update))

    def _work(
        self, wanted_run: _Wish, subject: str, job: RuleJob, cancelled: threading.Event
    ) -> str | None:
        """Run the command to its end, or end it; why it has no result, None where it has one."""
        folder = self._folder / job.id
        progress = partial(wanted_run.progress, subject)
        command = ("rules", wanted_run.verb, subject, *wanted_run.options)
        with (folder / _RESULT).open("wb") as result, (folder / _WORDS).open("wb") as words:
            code, over = run_into(
                command,
                self._settings,
                result,
                words,
                cancelled,
                wanted_run.seconds,
                # The stream must have the cores first.
                nice=_NICE,
                each_second=lambda: self._keep(job.model_copy(update={"progress": progress()})),
            )
        if over == "cancelled":
            return over
        if over == "late":
            return (
                f"stopped after {wanted_run.seconds:g} s; take a shorter span, or run the command"
            )
        if code != 0:
            return _last_words(folder / _WORDS, code)
        if (folder / _RESULT).stat().st_size > _LARGEST_RESULT:
            return f"its result has more than {_LARGEST_RESULT} bytes; run the command"
        return None


def _last_words(file: Path, code: int) -> str:
    refusals = refusals_in(file.read_text("utf-8", "replace").splitlines())
    return refusals[-1][:600] if refusals else f"its process ended with code {code}; see {file}"
