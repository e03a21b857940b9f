"""The command `report`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from infra.config.settings import Settings
from infra.errors import Usage
from infra.process.table_output import add_output_option, print_lines, print_rows
from reporting.interval import FORMS, parse_interval

_ENDINGS = {".html": "html", ".pdf": "pdf", ".json": "json", ".zip": "csv"}


def build(subparsers: Any) -> None:
    """Add the command; each action sets `run`, called with the arguments and the settings."""
    from reporting.reports import reports

    report = subparsers.add_parser("report", help="write a report, or list the reports there are")
    kinds = report.add_subparsers(dest="action", required=True)
    run = kinds.add_parser("run", help="write a report as HTML, PDF, JSON or CSV")
    run.add_argument("name", choices=tuple(reports()))
    run.add_argument("--interval", required=True, help=FORMS)
    run.add_argument("--zone", help="zone of the days, an IANA name (default: reports.zone)")
    run.add_argument(
        "--subject",
        default="",
        help="of a dossier the device or the incident's id; of query the saved query's name",
    )
    run.add_argument(
        "--format",
        dest="forms",
        action="append",
        choices=("html", "pdf", "json", "csv"),
        help="again for several (default: reports.formats); JSON is always kept",
    )
    run.add_argument(
        "--out",
        type=Path,
        help="one file, its form by its ending (.html .pdf .json .zip); "
        "default: <home>/reports/<name>-<span>.*",
    )
    run.add_argument(
        "--dry-run",
        action="store_true",
        help="only say of what time it would be, or why it cannot be asked for",
    )
    run.set_defaults(run=run_report)
    listed = kinds.add_parser("list", help="reports there are, and those kept")
    add_output_option(listed)
    listed.set_defaults(run=list_reports)
    due = kinds.add_parser("due", help="make and send what reports.scheduled wants and is due")
    due.set_defaults(run=run_due)


def run_report(args: argparse.Namespace, settings: Settings) -> int:
    """Write the report and print where it is."""
    form = _form_of(args)
    interval = parse_interval(args.interval, args.zone or settings.reports.zone)
    if args.dry_run:
        from reporting.reports import reports

        reports()[args.name].check_subject(args.subject)
        print_lines([f"{args.name}: {interval}"])
        return 0
    from reporting.cli.making import make_report
    from reporting.document.archive import forget_old, in_form, keep, write

    report = make_report(settings, args.name, interval, args.subject)
    if args.out is not None:
        paths = [write(args.out, in_form(report, form))]
        paths += [
            write(args.out.with_name(f"{args.out.stem}.{name}"), content)
            for name, content in report.attachments.items()
        ]
    else:
        paths = keep(settings, report, args.forms or settings.reports.formats)
        forget_old(settings)
    print_lines([str(path) for path in paths])
    return 0


def list_reports(args: argparse.Namespace, settings: Settings) -> int:
    """Name the reports, and the files made so far."""
    from reporting.document.archive import reports_folder
    from reporting.reports import reports

    rows = []
    for name, report in reports().items():
        about = f" (--subject: {report.subject})" if report.subject else ""
        rows.append({"what": "report", "name": name, "about": f"{report.doc}{about}"})
    kept: Sequence[Path] = sorted(reports_folder(settings).glob("*"))
    # Names with a dot are of files that are still being written.
    files = [str(file) for file in kept if not file.name.startswith(".")]
    rows += [{"what": "file", "name": file, "about": ""} for file in files]
    print_rows(rows, args.output)
    return 0


def run_due(args: argparse.Namespace, settings: Settings) -> int:
    """Make and send what is due; exit code 1 when something could not be sent."""
    from reporting.cli.due_reports import make_due

    return make_due(settings, datetime.now(UTC))


def _form_of(args: argparse.Namespace) -> str:
    if args.out is None:
        return ""
    if args.forms:
        raise Usage("--format goes without --out: the file's ending says the form")
    form = _ENDINGS.get(args.out.suffix)
    if form is None:
        raise Usage(f"--out {args.out}: end it in {', '.join(_ENDINGS)}")
    return form
