"""The command `report`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from infra.config.settings import Settings
from infra.config.tenants import owner_of
from infra.errors import Usage
from infra.process.progress import Tell, into_file, progress
from infra.process.table_output import add_output_option, print_lines, print_rows
from reporting.interval import FORMS, Interval, parse_interval

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
    run.add_argument("--tenant", help="over whose rows alone; default: over all")
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
        "--progress",
        type=Path,
        metavar="FILE",
        help="write how far it is into this file, as JSON, while it is made",
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
    due.add_argument(
        "--dismiss",
        metavar="NAME",
        help="no longer show a scheduled report that failed, such as daily-2026-11-20_2026-11-21",
    )
    due.set_defaults(run=run_due)


def run_report(args: argparse.Namespace, settings: Settings) -> int:
    """Write the report and print where it is."""
    form = _form_of(args)
    interval = parse_interval(args.interval, args.zone or settings.reports.zone)
    if args.dry_run:
        from reporting.cli.making import check_tenant
        from reporting.reports import reports

        listed = reports()[args.name]
        listed.check_subject(args.subject)
        check_tenant(settings, listed, args.tenant)
        print_lines([f"{args.name}: {interval}"])
        return 0
    with progress(f"report {args.name}") as step:
        paths = _written(args, settings, interval, form, _tells(step, args.progress))
    print_lines([str(path) for path in paths])
    return 0


def _written(
    args: argparse.Namespace, settings: Settings, interval: Interval, form: str, tell: Tell
) -> list[Path]:
    from reporting.cli.making import make_report
    from reporting.document.archive import forget_old, in_form, keep, write
    from reporting.document.making_progress import MakingProgress
    from reporting.reports import reports

    forms = args.forms or settings.reports.formats
    # Of a name that there is not, `make_report` says so.
    questions = known.questions if (known := reports().get(args.name)) else None
    files = 1 if args.out else len(forms)
    making = MakingProgress(settings, args.name, files, tell, questions)
    report = make_report(
        settings, args.name, interval, args.subject, tenant=args.tenant, asks=making.asks
    )
    making.answered()
    if args.out is not None:
        paths = [write(args.out, in_form(report, form))]
        return paths + [
            write(args.out.with_name(f"{args.out.stem}.{name}"), content)
            for name, content in report.attachments.items()
        ]
    paths = keep(settings, report, forms)
    forget_old(settings)
    return paths


def _tells(step: Callable[..., None], file: Path | None) -> Tell:
    if file is not None and not file.name:
        raise Usage(f"--progress '{file}': names no file; write one, such as progress.json")
    tellers: list[Callable[..., None]] = [step] if file is None else [step, into_file(file)]

    def tell(sentence: str, done: float | None, total: float | None) -> None:
        for each in tellers:
            each(sentence, done, total)

    return tell


def list_reports(args: argparse.Namespace, settings: Settings) -> int:
    """Name the reports, with --tenant where one can be made for a tenant, and the files made so
    far, each with its tenant."""
    from reporting.reports import reports

    rows = []
    for name, report in reports().items():
        about = f" (--subject: {report.subject})" if report.subject else ""
        tenant = "" if report.of_tenant is None else "--tenant"
        row = {"what": "report", "name": name, "tenant": tenant, "about": f"{report.doc}{about}"}
        rows.append(row)
    kept: Sequence[Path] = sorted(settings.reports_folder.glob("*"))
    # Names with a dot are of files that are still being written.
    rows += [
        {"what": "file", "name": str(file), "tenant": owner_of(file.name) or "", "about": ""}
        for file in kept
        if not file.name.startswith(".")
    ]
    print_rows(rows, args.output)
    return 0


def run_due(args: argparse.Namespace, settings: Settings) -> int:
    """Make and send what is due; exit code 1 when something could not be sent."""
    if args.dismiss is not None:
        return _dismiss(args.dismiss, settings)
    from reporting.cli.due_reports import make_due

    return make_due(settings, datetime.now(UTC))


def _dismiss(name: str, settings: Settings) -> int:
    from infra.runtime.report_failures import dismiss_failure, left_failures
    from infra.streaming.outbox import note_audit

    failed = list(dict.fromkeys(each.stem for each in left_failures(settings)))
    dismissed = dismiss_failure(settings, name)
    if not dismissed:
        known = f"; these are: {', '.join(failed)}" if failed else ", nor is any other"
        raise Usage(f"--dismiss {name}: no such scheduled report is missing{known}")
    detail = {"problem": dismissed[0].problem}
    note_audit(settings.home.absolute() / "spool", "report.dismiss", name, detail)
    return 0


def _form_of(args: argparse.Namespace) -> str:
    if args.out is None:
        return ""
    if args.forms:
        raise Usage("--format goes without --out: the file's ending says the form")
    form = _ENDINGS.get(args.out.suffix)
    if form is None:
        raise Usage(f"--out {args.out}: end it in {', '.join(_ENDINGS)}")
    return form
