"""What the API keeps of questions for a while: results as files, and answers to be sent again.

A result has rows of people that it does not name, as by their addresses, so none is looked into:
all of them go, those under way too, which may have read the tables before they were rewritten.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from infra.config.settings import Settings
from infra.storage.atomic_files import write_private
from reporting.erasure.subject_match import Search

RESULTS = ("evidence", "rule-jobs", "searches")
"""Folders of `<home>/api` with a folder for each job (`api.services.searches.job_store`)."""
ANSWERS = "answers"
"""The folder with what POSTs were answered (`api.idempotency`)."""
STATE = "job.json"


def results_removed(settings: Settings, *, dry: bool) -> int | str:
    """Remove results of searches, tries of rules and evidence bundles: how many there were, or a
    sentence about what stayed."""
    jobs = [folder for name in RESULTS for folder in _folders(_kept(settings) / name)]
    if dry:
        return len(jobs)
    stayed: list[str] = []
    for job in jobs:
        # Its state first: from then on nobody meets it, and one under way keeps nothing any more.
        with suppress(FileNotFoundError):
            (job / STATE).unlink()
        # Again where a job that runs has put a file there meanwhile.
        for _ in range(2):
            shutil.rmtree(job, ignore_errors=True)
        if job.exists():
            stayed.append(str(job))
    if stayed:
        return f"{len(stayed)} cannot be removed, such as {stayed[0]}; delete them"
    return len(jobs)


def answers_reworded(settings: Settings, search: Search, *, dry: bool) -> int:
    """Replace words in answers that are kept for who sends a POST again; how many had some.

    One that is no text, as a table in Parquet, is of a question and not of an act: it is removed.
    """
    done = 0
    for file in sorted((_kept(settings) / ANSWERS).glob("*.json")):
        with suppress(FileNotFoundError):  # its time is over since it was listed
            content, written = file.read_text("utf-8"), file.stat().st_mtime
            renewed = _reworded(content, search)
            if renewed == content:
                continue
            done += 1
            if dry:
                continue
            if renewed is None:
                file.unlink()
            else:
                write_private(file, renewed)
                # Its age says for how long it is kept.
                os.utime(file, (written, written))
    return done


def _reworded(content: str, search: Search) -> str | None:
    """An answer without the words; None: it cannot be read as text."""
    try:
        kept = json.loads(content)
        headers, body = json.dumps(kept["headers"]), base64.b64decode(kept["body"]).decode()
    except (ValueError, KeyError, TypeError):
        return None
    if not search.has(body) and not search.has(headers):
        return content
    renewed = base64.b64encode(search.text(body).encode()).decode()
    return json.dumps(kept | {"body": renewed, "headers": json.loads(search.text(headers))})


def _kept(settings: Settings) -> Path:
    return settings.home.absolute() / "api"


def _folders(root: Path) -> Iterator[Path]:
    with suppress(FileNotFoundError):
        yield from (path for path in sorted(root.iterdir()) if path.is_dir())
