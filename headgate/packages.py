"""Puts the packages together: each registers what it contributes, here in their order.

Importing this module is what makes tables, jobs and commands known. Nothing below names anything
above itself: a package says in its own `registration.py` what it brings.
"""

from __future__ import annotations

import alerts.registration
import api.registration
import enrich.registration
import infra.registration
import ingest.registration
import reporting.registration
from infra.config.settings import Settings
from infra.process.subprocesses import register_command_line
from infra.runtime.command_registry import Build, Command, register_commands
from infra.spark.appcds import Training, register_training
from reporting.document.saved_query import SavedAnswer, register_saved_queries
from reporting.interval import Interval


def _demo() -> Build:
    from headgate.demo.demo import build

    return build


def _completion() -> Build:
    from headgate.completion.command import build

    return build


def _notebook() -> Build:
    from headgate.notebook_command import build

    return build


def _mcp() -> Build:
    from headgate.mcp.command import build

    return build


def _lab() -> Build:
    from headgate.lab.command import build

    return build


def _export() -> Build:
    from headgate.as_code.command import build_export

    return build_export


def _plan() -> Build:
    from headgate.as_code.command import build_plan

    return build_plan


def _apply() -> Build:
    from headgate.as_code.command import build_apply

    return build_apply


def _saved_query(settings: Settings, name: str, interval: Interval) -> SavedAnswer:
    from headgate.saved_query_reports import answer_saved_query

    return answer_saved_query(settings, name, interval)


def _training() -> Training:
    from headgate.demo.appcds_training import make_archive

    # Imported when it is called: training brings in the whole demo.
    return lambda say, again: make_archive(say, again=again)


# From the bottom up: a package's registration may rest on what those below it brought.
for package in (infra, ingest, enrich, alerts, api, reporting):
    package.registration.register()
register_commands(
    Command("demo", "everything on one machine, with a story in the logs", _demo, "begin"),
    Command("completion", "a shell's completion of these commands", _completion, "begin"),
)
register_commands(
    Command("notebook", "open the lessons in Jupyter", _notebook, "ask the data"),
    Command("mcp", "tools for an assistant, which read and propose", _mcp, "ask the data"),
)
register_commands(
    Command("export", "write what is in force as files for git", _export, "keep it in order"),
    Command("plan", "what such files would change", _plan, "keep it in order"),
    Command("apply", "put such files in force, as one", _apply, "keep it in order"),
)
register_commands(
    Command("lab", "a day without attacks, to measure products and rules by", _lab, "write rules"),
)
register_training(_training)
register_saved_queries(_saved_query)
register_command_line("headgate.cli")
