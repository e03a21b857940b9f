"""Commands of the operator: doctor, up, run, tables."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from infra.config.settings import Settings
from infra.delta.catalog import catalog, table, views
from infra.delta.schema import Table
from infra.errors import Fatal, HeadgateError
from infra.kafka.client import require_broker, require_free
from infra.kafka.embedded_broker import EmbeddedBroker
from infra.process import java_jars, jdk
from infra.process.log import say
from infra.process.table_output import add_output_option, print_document, print_rows
from infra.runtime.check_registry import registered_findings
from infra.runtime.driver import Driver
from infra.runtime.job_registry import JOBS, wanted_jobs
from infra.runtime.machine_checks import Finding, check_disk, check_memory, check_pdf
from infra.spark import appcds

Subparsers = argparse._SubParsersAction  # argparse gives this type no public name


def build(commands: Subparsers[argparse.ArgumentParser]) -> None:
    """Register the operator's commands."""
    doctor = commands.add_parser("doctor", help="say what is missing and how to get it")
    doctor.add_argument("--fix", action="store_true", help="fetch what can be fetched")
    doctor.add_argument("--jars", action="store_true", help="only fetch missing Java archives")
    doctor.add_argument(
        "--classes",
        action="store_true",
        help="only fetch them, and gather Spark's classes: it starts sooner",
    )
    add_output_option(doctor)
    doctor.set_defaults(run=_doctor)
    up = commands.add_parser("up", help="run all jobs in one driver")
    up.add_argument(
        "--broker",
        choices=("embedded",),
        help="run a Kafka broker of its own beside the jobs, on loopback, its log in <home>/kafka; "
        "topics of [sources] are made, and what is a week old goes",
    )
    up.set_defaults(run=_up)
    run = commands.add_parser("run", help="run one job")
    run.add_argument("job", help=", ".join(JOBS))
    run.add_argument("--once", action="store_true", help="work off what is there and end")
    run.set_defaults(run=_one)
    for part in (up, run):
        part.add_argument(
            "--log-format",
            choices=("text", "json"),
            help="what it says on stderr; default: log_format of the settings",
        )
    tables = commands.add_parser("tables", help="the tables and what their columns mean")
    tables.add_argument("name", nargs="?", help="one table, with its columns")
    add_output_option(tables, "markdown")
    tables.set_defaults(run=_tables)


def _up(arguments: argparse.Namespace, settings: Settings) -> int:
    settings = _speaking(arguments, settings)
    driver = Driver(settings, wanted_jobs(settings), every=True)
    if arguments.broker is None:
        driver.stop_on_signals()
        return driver.run()
    # A broker beside the jobs takes memory and disk of its own; without one this is left to whoever
    # runs Kafka.
    for finding in (check_memory(), check_disk(settings.home)):
        if finding.remedy:
            raise Fatal(f"{finding.what}: {finding.found}; {finding.remedy}")
    broker = EmbeddedBroker(settings, say)
    # Before the broker starts: a signal meanwhile then ends both in order.
    driver.stop_on_signals()
    with broker:
        return driver.run()


def _one(arguments: argparse.Namespace, settings: Settings) -> int:
    driver = Driver(_speaking(arguments, settings), (arguments.job,), once=arguments.once)
    driver.stop_on_signals()
    return driver.run()


def _speaking(arguments: argparse.Namespace, settings: Settings) -> Settings:
    """The settings with the form of log lines that the command was given."""
    form = arguments.log_format
    return settings.model_copy(update={"log_format": form}) if form else settings


def examine(settings: Settings) -> Iterator[Finding]:
    """Look at everything a run needs."""
    try:
        jdk.require_java()
        yield Finding("java", "17 or newer")
    except Fatal as error:
        yield Finding("java", "not usable", str(error))
    absent, locked = java_jars.missing(), java_jars.locked()
    yield Finding(
        "archives",
        f"{len(locked) - len(absent)} of {len(locked)} in {java_jars.jars_folder()}",
        "headgate doctor --fix fetches them" if absent else None,
    )
    # Classes are gathered out of the archives: before these are there it says nothing to ask.
    if not absent:
        ready = appcds.file().exists()
        yield Finding(
            "classes",
            "gathered" if ready else "not gathered: Spark starts slower",
            None if ready else "headgate doctor --fix gathers them",
        )
    yield check_memory()
    yield check_disk(settings.home)
    yield check_pdf()
    try:
        require_broker(settings.kafka, 2.0)
        yield Finding("kafka", f"answers at {settings.kafka.bootstrap}")
    except HeadgateError as error:
        yield Finding("kafka", "does not answer (the demo starts its own)", str(error))
    yield open_paths(settings)
    yield from registered_findings(settings)
    try:
        require_free(settings.api.port, "the API", "api.port")
        yield Finding("api port", f"{settings.api.port} is free")
    except Fatal as error:
        yield Finding("api port", "taken", str(error))


def open_paths(settings: Settings) -> Finding:
    """Whether others may look into what is kept, or change the settings."""
    # Below a folder that others may not enter nothing is open, whatever its own bits say.
    kept = (settings.home.absolute(), settings.lake_side, settings.checkpoint_root)
    config = os.environ.get("HEADGATE_CONFIG")
    wide = [_wider(path, settings.mask, f"{0o777 & ~settings.mask:o}") for path in kept]
    # The settings may be read by others; who could write them would decide what runs.
    wide += [_wider(Path(config), 0o022, "go-w")] if config else []
    remedies = list(dict.fromkeys(filter(None, wide)))
    return Finding(
        "access",
        "open to other users" if remedies else "nothing is open to other users",
        "; ".join(remedies) or None,
    )


def _wider(path: Path, mask: int, mode: str) -> str | None:
    """The remedy for a path that gives others what `mask` keeps from them."""
    wide = path.exists() and path.stat().st_mode & mask & 0o077
    return f"chmod {mode} {path}" if wide else None


def _doctor(arguments: argparse.Namespace, settings: Settings) -> int:
    if arguments.fix or arguments.jars or arguments.classes:
        jdk.require_java()
        if java_jars.missing():
            print("fetching the Java archives (once) ...", file=sys.stderr)
            print(f"{java_jars.resolve()} archives in {java_jars.jars_folder()}", file=sys.stderr)
        if arguments.fix or arguments.classes:
            _gather(again=arguments.fix)
    if arguments.jars or arguments.classes:
        return 0
    # The demo starts its own broker; the others are only slower, or an extra.
    spared = ("kafka", "classes", "pdf")
    findings = list(examine(settings))
    ill = [each for each in findings if each.remedy and each.what not in spared]
    if arguments.output != "table":
        rows = [{"what": f.what, "state": f.found, "remedy": f.remedy} for f in findings]
        print_rows(rows, arguments.output)
        return 1 if ill else 0
    for finding in findings:
        mark = "ok " if finding.remedy is None else "-- "
        print(f"{mark} {finding.what:<9} {finding.found}")
        if finding.remedy:
            print(f"              {finding.remedy}")
    return 1 if ill else 0


def _gather(*, again: bool) -> None:
    """Gather Spark's classes where there is room for a driver and a broker."""

    def say(line: str) -> None:
        print(line, file=sys.stderr)

    short = check_memory().remedy
    if short and not appcds.file().exists():
        say(f"{appcds.NOT_GATHERED}: {short}")
    else:
        appcds.train_archive(say, again=again)


def _tables(arguments: argparse.Namespace, settings: Settings) -> int:
    if arguments.output == "markdown":
        print("\n".join(_markdown()))
    elif arguments.output == "json":
        print_document(_catalogue(arguments.name), indent=1)
    elif arguments.name in views():
        view = views()[arguments.name]
        print(f"{arguments.name}: {view.doc}\n\n{view.sql.strip()}")
    elif arguments.name:
        _print_columns(table(arguments.name), arguments.output)
    else:
        rows = [
            {"name": name, "kind": "table", "doc": table.doc} for name, table in catalog().items()
        ]
        rows += [
            {"name": name, "kind": "view", "doc": table.doc} for name, table in views().items()
        ]
        print_rows(rows, arguments.output)
    return 0


def _print_columns(declared: Table, form: str) -> None:
    if form == "table":
        print(f"{declared.name}: {declared.doc}\n")
    rows = [
        {"column": column.name, "type": column.type.simpleString(), "doc": column.doc}
        for column in declared.columns
    ]
    print_rows(rows, form, shown={"type": lambda text: str(text)[:40]})


def _catalogue(name: str | None) -> list[dict[str, object]]:
    tables = [table(name)] if name else list(catalog().values())
    return [
        {
            "name": declared.name,
            "doc": declared.doc,
            "columns": [
                {"name": c.name, "type": c.type.simpleString(), "doc": c.doc}
                for c in declared.columns
            ],
        }
        for declared in tables
    ]


def _markdown() -> Iterator[str]:
    yield "# Tables\n\nMade by `headgate tables --output markdown`; do not edit."
    yield "Times are UTC. Columns without a type are `string`.\n"
    for declared in catalog().values():
        yield f"## {declared.name}\n\n{declared.doc}\n"
        for column in declared.columns:
            doc = column.doc.removesuffix(", UTC")
            kind = column.type.simpleString()
            yield f"- `{column.name}`{'' if kind == 'string' else f' `{kind}`'}: {doc}"
        yield ""
    yield "# Views\n"
    for view in views().values():
        yield f"- **{view.name}**: {view.doc}"
