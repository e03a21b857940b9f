"""`headgate evidence`: a file with all that is behind alerts, and its check anywhere."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infra.config.settings import Settings
from infra.errors import Usage
from infra.process.os_user import acting_user
from infra.process.table_output import print_document, print_lines
from infra.streaming.outbox import note_audit

if TYPE_CHECKING:
    from alerts.cases.case import Case


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
    exported.add_argument("ids", nargs="+", metavar="ID", help="a case, or alerts, by their ids")
    exported.add_argument("--file", type=Path, required=True, help="where to: a new file")
    exported.add_argument(
        "--format",
        choices=("zip", "stix"),
        default="zip",
        help="zip: rows, records and hashes; stix: a bundle for other platforms (default: zip)",
    )
    exported.set_defaults(run=_export)
    verified = verbs.add_parser("verify", help="check a bundle; needs no lake; exit 1: not whole")
    verified.add_argument("file", type=Path, help="the bundle")
    verified.add_argument("--digest", help="SHA-256 of the file, as ops.audit has it")
    verified.add_argument("--output", choices=("text", "json"), default="text")
    verified.set_defaults(run=_verify)


def _export(args: argparse.Namespace, settings: Settings) -> int:
    import msgspec

    from alerts.cases.case_store import PREFIX, all_cases, case_called
    from alerts.cases.evidence import write_bundle
    from alerts.cli.explain import asking
    from alerts.delivery.reader import detail

    if args.file.exists():
        raise Usage(f"{args.file}: is there already; name another file")
    with asking(settings) as ask:
        case = None
        if any(name.startswith(PREFIX) for name in args.ids):
            if len(args.ids) > 1:
                raise Usage("one case, or alerts: a bundle of several cases is of their alerts")
            case = case_called(all_cases(ask, settings), args.ids[0])
        ids = case.alerts if case else [detail(settings, name).alert_id for name in args.ids]
        if args.format == "stix":
            return _export_stix(args.file, settings, ids, case)
        bundle = write_bundle(
            ask, settings, ids, args.file, who=acting_user(),
            case=msgspec.to_builtins(case) if case else None,
        )  # fmt: skip
    target = case.case_id if case else ids[0]
    note = {"digest": bundle.digest, "alerts": len(ids), "rows": dict(bundle.counts)}
    note_audit(settings.home.absolute() / "spool", "evidence.export", target, note)
    print_lines([f"{bundle.digest}  {args.file}", *_missing(bundle.missing)])
    return 0


def _export_stix(file: Path, settings: Settings, ids: Sequence[str], case: Case | None) -> int:
    from alerts.cases.stix_bundle import stix_bundle
    from alerts.delivery.reader import detail
    from infra.storage.atomic_files import write_whole

    bodies = [detail(settings, alert_id).body for alert_id in ids]
    bundle, left_out = stix_bundle(bodies, settings.intelligence.stix, case)
    content = json.dumps(bundle, indent=1, ensure_ascii=False).encode() + b"\n"
    write_whole(file, content)
    digest = sha256(content).hexdigest()
    note = {"digest": digest, "alerts": len(ids) - left_out, "bundle": bundle["id"]}
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
