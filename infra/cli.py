"""The command `headgate`. A folder's own `cli.py` is imported only when its command is used."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from infra.errors import HeadgateError, Usage
from infra.settings import Settings, load

BUG = 70
"""Exit code of a part that ended with an error that is not one of ours (`EX_SOFTWARE`)."""

COMMANDS: dict[str, tuple[str, str]] = {
    "doctor": ("infra.operate", "say what is missing on this machine and how to get it"),
    "demo": ("infra.demo", "everything on one machine, with a story in the logs"),
    "up": ("infra.operate", "run all jobs in one driver"),
    "run": ("infra.operate", "run one job"),
    "status": ("infra.status_cli", "where each job stands; exit 1 when one misses its target"),
    "resume": ("infra.status_cli", "let a job go on that was stopped for good"),
    "compact": ("infra.upkeep_cli", "merge small files, apply retention, delete what nobody needs"),
    "backup": ("infra.backup_cli", "copy lake, checkpoints and spool while no job runs"),
    "restore-backup": ("infra.backup_cli", "put a backup back, onto an empty home"),
    "size": ("infra.sizing_cli", "cores, memory, partitions and disk for a load, as measured"),
    "tables": ("infra.operate", "the tables, and what their columns mean"),
    "settings": ("infra.kafka_cli", "what is set, secrets as *****"),
    "kafka": ("infra.kafka_cli", "topics and rights at the broker: acls, topics"),
    "replay": ("ingest.cli", "send log files to Kafka as if they happened now"),
    "import": ("ingest.cli", "take archived logs into the tables, without alerts"),
    "sources": ("ingest.cli", "what can be read"),
    "parse": ("ingest.cli", "turn raw records into OCSF events, without Spark"),
    "gaps": ("ingest.gap_cli", "messages the broker lost before they were read"),
    "accept-gap": ("ingest.gap_cli", "go on without them, on a person's word"),
    "quality": ("ingest.cli", "check what ingest wrote against expectations"),
    "reparse": ("ingest.cli", "read history again with today's parsers, while the jobs run"),
    "load": ("enrich.cli", "bring assets or users to what an inventory lists"),
    "rollup": ("enrich.rollup_cli", "counts: what was compared with the events; count anew"),
    "rebuild": ("enrich.rebuild_cli", "make a job's checkpoint anew from the tables"),
    "rules": ("alerts.cli", "list, test, switch rules on and off"),
    "models": ("alerts.models_cli", "anomaly detectors: train, compare, put in force"),
    "indicators": ("alerts.indicator_cli", "lists of addresses, domains, hashes that rules ask"),
    "alerts": ("alerts.cli", "read alerts from the topic or the table"),
    "explain": ("alerts.cli", "why an alert is there: rule, values that matched, evidence"),
    "verify": ("alerts.cli", "run the live rules over history: did the stream tell the same?"),
    "suppress": ("alerts.delivery_cli", "silence alerts, with a reason, for a time"),
    "triage": ("alerts.delivery_cli", "take, judge or reopen an alert"),
    "repair": ("alerts.repair_cli", "put leases and attributions right after late DHCP lines"),
    "webhooks": ("alerts.webhook_cli", "alerts that wait for webhooks"),
    "lease": ("api.cli", "who held an address at an instant"),
    "who": ("api.who", "who used an address, a device or a host at an instant"),
    "sql": ("api.cli", "ask the tables in Spark SQL"),
    "api": ("api.cli", "serve the REST API"),
    "report": ("reporting.cli", "write a report"),
    "erase": ("reporting.erase_cli", "take a person or a device out of all tables, certified"),
    "ledger": ("reporting.cli", "received, parsed, dead, unaccounted: by source"),
}

Run = Callable[[argparse.Namespace, Settings], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command: exit code 0, 1 (failed) or 2 (usage)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        return _run(arguments)
    except HeadgateError as error:
        print(f"headgate: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output (`| head`) has gone; that is no failure of ours.
        sys.stderr.close()
        return 0


def _run(arguments: list[str]) -> int:
    first = argparse.ArgumentParser(prog="headgate", add_help=False)
    first.add_argument("--config", type=Path)
    first.add_argument("--home", type=Path)
    known, rest = first.parse_known_args(_before_command(arguments))
    command = arguments[len(_before_command(arguments)) :]
    if not command or rest:
        return _help(rest)
    name = command[0]
    if name not in COMMANDS:
        raise Usage(f"no command '{name}'; 'headgate --help' lists them")
    parser = argparse.ArgumentParser(prog="headgate")
    import_module(COMMANDS[name][0]).build(parser.add_subparsers(dest="command", required=True))
    parsed = parser.parse_args(command)
    if known.config is not None:
        # Parts of us that run as processes of their own read the same file.
        os.environ["HEADGATE_CONFIG"] = str(known.config.absolute())
    overrides: dict[str, Any] = {} if known.home is None else {"home": known.home}
    run: Run = parsed.run
    settings = load(known.config, **overrides)
    os.umask(settings.mask)  # also for the JVM and all processes that are started from here
    return run(parsed, settings)


def _before_command(arguments: list[str]) -> list[str]:
    """Global options: everything up to the first word that is neither an option nor its value."""
    index = 0
    while index < len(arguments) and arguments[index].startswith("-"):
        index += 2 if arguments[index] in ("--config", "--home") else 1
    return arguments[:index]


def _help(rest: list[str]) -> int:
    wrong = [word for word in rest if word not in ("-h", "--help", "--version")]
    if wrong:
        raise Usage(f"unknown option '{wrong[0]}'; 'headgate --help' lists what there is")
    if "--version" in rest:
        from importlib.metadata import version

        print(f"headgate {version('headgate')}")
        return 0
    print("usage: headgate [--config FILE] [--home FOLDER] COMMAND ...\n")
    print("Security log analytics: structured history, attribution and alerts.\n\ncommands:")
    wide = max(map(len, COMMANDS))
    for name, (_, doc) in COMMANDS.items():
        print(f"  {name:<{wide}} {doc}")
    print("\n'headgate COMMAND --help' says more.")
    return 0


def part(run: Callable[[], int]) -> int:
    """`run` in a process of its own; `BUG` where it ends with an error that is not one of ours, so
    that whoever started it can tell that from a command that says no."""
    try:
        return run()
    except Exception:
        traceback.print_exc()
        return BUG


if __name__ == "__main__":
    sys.exit(part(main))
