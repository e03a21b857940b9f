"""`headgate evidence`: a file with all that is behind alerts, and its check anywhere."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infra.config.settings import Settings
from infra.config.tenants import listed_tenants
from infra.errors import Usage
from infra.process.os_user import acting_user
from infra.process.progress import progress
from infra.process.table_output import print_document, print_lines
from infra.streaming.outbox import note_audit

if TYPE_CHECKING:
    from alerts.backtest.rerun import Ask
    from alerts.cases.case import Case

_WHOSE = """
SELECT DISTINCT tenant_uid FROM gold.alert
WHERE list_contains($ids, alert_id) AND tenant_uid IS NOT NULL ORDER BY tenant_uid
"""


def build(subparsers: Any) -> None:
    """Add `evidence` to the command."""
    evidence = subparsers.add_parser(
        "evidence", help="all that is behind alerts as one file, and its check"
    )
    verbs = evidence.add_subparsers(dest="verb", required=True)
    exported = verbs.add_parser(
        "export",
        help="write alerts, findings, events, raw records, versions and hashes",
        description="A zip that `evidence verify` checks, or with --format stix a STIX 2.1 bundle "
        "of sightings and of what was observed, to share: marked and named by [intelligence.stix]; "
        "alerts judged false_positive, benign, test or duplicate are not in it.",
    )
    exported.add_argument(
        "ids",
        nargs="+",
        metavar="ID",
        help="a case, or alerts, by their ids; an incident is it and its alerts",
    )
    exported.add_argument("--file", type=Path, required=True, help="where to: a new file")
    exported.add_argument(
        "--format",
        choices=("zip", "stix"),
        default="zip",
        help="zip: rows, records and hashes; stix: a bundle for other platforms (default: zip)",
    )
    exported.add_argument(
        "--tenant",
        action="append",
        help="for somebody of this tenant (repeatable): rows of it alone, and no case in which "
        "another's alert ever was",
    )
    exported.set_defaults(run=_export)
    verified = verbs.add_parser("verify", help="check a bundle; needs no lake; exit 1: not whole")
    verified.add_argument("file", type=Path, help="the bundle")
    verified.add_argument("--digest", help="SHA-256 of the file, as ops.audit has it")
    verified.add_argument("--output", choices=("text", "json"), default="text")
    verified.set_defaults(run=_verify)


def _export(args: argparse.Namespace, settings: Settings) -> int:
    import msgspec

    from alerts.cases.evidence import write_bundle
    from alerts.cli.explain import asking

    if args.file.exists():
        raise Usage(f"{args.file}: is there already; name another file")
    tenants = listed_tenants(args.tenant, settings.tenants, "--tenant") if args.tenant else None
    with asking(settings, tenants) as ask:
        case, ids = _chosen(ask, settings, args.ids, tenants)
        _tell_whose(ask, settings, ids, tenants)
        if args.format == "stix":
            return _export_stix(args.file, settings, ids, case, tenants)
        with progress("evidence") as step:
            bundle = write_bundle(
                ask, settings, ids, args.file, who=acting_user(), tell=step,
                case=msgspec.to_builtins(case) if case else None, limited=tenants is not None,
            )  # fmt: skip
    target = case.case_id if case else ids[0]
    note: dict[str, Any] = {
        "digest": bundle.digest, "alerts": len(ids), "rows": dict(bundle.counts)
    }  # fmt: skip
    note |= {"tenants": list(tenants)} if tenants else {}
    note_audit(settings.home.absolute() / "spool", "evidence.export", target, note)
    print_lines([f"{bundle.digest}  {args.file}", *_missing(bundle.missing), *bundle.damaged])
    return 0


def _chosen(
    ask: Ask, settings: Settings, names: Sequence[str], tenants: Sequence[str] | None
) -> tuple[Case | None, list[str]]:
    """The case that is meant, if it is one, and the ids of the alerts.

    Of who is limited to tenants what is another's is not there, as over REST.
    """
    from alerts.cases.case_store import PREFIX, all_cases, case_called, cases_of_tenants
    from alerts.cases.incident_alerts import with_alerts_of_incidents
    from alerts.cli.explain import asking
    from alerts.delivery.alert_id import ALERTS_NEED, alert_id_of

    if not any(name.startswith(PREFIX) for name in names):
        alerts = partial(ask, needs=ALERTS_NEED)
        ids = list(dict.fromkeys(alert_id_of(alerts, name) for name in names))
        return None, with_alerts_of_incidents(ask, ids)
    if len(names) > 1:
        raise Usage("one case, or alerts: a bundle of several cases is of their alerts")
    # What cases are made of does not say whose it is.
    with asking(settings) as whole:
        cases = all_cases(whole, settings)
    case = case_called(cases if tenants is None else cases_of_tenants(ask, cases), names[0])
    if not case.alerts:
        raise Usage(f"{case.case_id} has no alerts; link some, then there is evidence")
    return case, case.alerts


def _tell_whose(
    ask: Ask, settings: Settings, ids: Sequence[str], tenants: Sequence[str] | None
) -> None:
    """Say on stderr whose rows go into a file that nobody limited."""
    if tenants is not None or not settings.tenants:
        return
    rows = ask(_WHOSE, {"ids": list(ids)}, needs=("gold.alert",))
    names = [str(row["tenant_uid"]) for row in rows]
    if names:
        print(
            f"it holds what is of tenant {', '.join(names)}, and what is everybody's; "
            "for one tenant's people say --tenant",
            file=sys.stderr,
        )


def _export_stix(
    file: Path,
    settings: Settings,
    ids: Sequence[str],
    case: Case | None,
    tenants: Sequence[str] | None,
) -> int:
    from alerts.cases.stix_bundle import stix_bundle
    from alerts.delivery.reader import whole_details
    from infra.storage.atomic_files import write_whole

    bodies = [alert.body for alert in whole_details(settings, ids)]
    bundle, left_out = stix_bundle(bodies, settings.intelligence.stix, case)
    content = json.dumps(bundle, indent=1, ensure_ascii=False).encode() + b"\n"
    write_whole(file, content)
    digest = sha256(content).hexdigest()
    note: dict[str, Any] = {
        "digest": digest, "alerts": len(bodies) - left_out, "bundle": bundle["id"]
    }  # fmt: skip
    note |= {"tenants": list(tenants)} if tenants else {}
    target = case.case_id if case else ids[0]
    note_audit(settings.home.absolute() / "spool", "evidence.stix", target, note)
    print_lines([f"{digest}  {file}"])
    if left_out:
        print(f"{left_out} alerts are not in it: they were judged no attack", file=sys.stderr)
    return 0


def _verify(args: argparse.Namespace, settings: Settings) -> int:
    from alerts.cases.evidence_check import check_bundle

    checked = check_bundle(args.file, args.digest)
    if args.output == "json":
        print_document(
            {"whole": not checked.problems, "digest": checked.digest}
            | {"problems": checked.problems, "manifest": checked.manifest},
            indent=2,
        )
        return 1 if checked.problems else 0
    if checked.problems:
        print_lines([f"{args.file}: not whole", *(f"  {line}" for line in checked.problems)])
        return 1
    manifest = checked.manifest
    rows = ", ".join(
        f"{count} {name.removesuffix('.ndjson')}" for name, count in manifest["rows"].items()
    )
    print_lines(
        [
            f"{args.file}: whole; {rows}",
            f"made {manifest['made_at']} by {manifest['made_by']}",
            f"SHA-256 {checked.digest}: compare it with ops.audit (act evidence.export)",
            *_missing(manifest["missing"]),
        ]
    )
    return 0


def _missing(missing: Any) -> list[str]:
    """What the tables had no more when the bundle was made; said, as it is no fault of the file."""
    return [
        f"not in the tables any more: {len(ids)} {kind}, such as {ids[0]}"
        for kind, ids in missing.items()
        if ids
    ]
