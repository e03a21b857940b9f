"""The commands about what goes out: `headgate suppress` and `headgate triage`."""

from __future__ import annotations

import argparse
import sys
import uuid
from datetime import UTC, datetime
from typing import Any

from alerts.cli.output import since_when, when_taken
from alerts.domain.verdict import VERDICTS, verdict_of
from infra.config.settings import Settings
from infra.errors import Usage
from infra.process.os_user import acting_user
from infra.process.table_output import add_output_option, print_rows

# Each revision of an alert is a row: only the first counts. That stands in the join, not in WHERE,
# so that a suppression which silenced nothing is listed as well.
_LISTED = """
SELECT s.suppression_id, s.rule, s.entity, s.fields, s.owner, s.reason, s.at, s.expires_at,
       s.ended_at, s.ended_by, count(a.alert_id) AS silenced
FROM gold.suppression s
LEFT JOIN gold.alert a ON a.suppressed_by = s.suppression_id AND a.revision = 1
GROUP BY ALL ORDER BY s.expires_at DESC, s.suppression_id
"""


def build(subparsers: Any) -> None:
    """Register the commands of this module with the command line's subparsers."""
    suppress = subparsers.add_parser("suppress", help="silence alerts, with a reason, for a time")
    verbs = suppress.add_subparsers(dest="verb", required=True)

    added = verbs.add_parser(
        "add", help="keep alerts from the topic; they stay in gold.alert, with this suppression"
    )
    added.add_argument("--rule", help="id, name or title; * and ? in an id or title")
    added.add_argument("--entity", help="MAC address, address, network, host or user; * and ?")
    added.add_argument(
        "--field", action="append", default=[], metavar="NAME=PATTERN", help="a value that matched"
    )
    added.add_argument("--reason", required=True, help="why, for those who wonder later")
    added.add_argument("--owner", help="who answers for it (default: you)")
    ends = added.add_mutually_exclusive_group(required=True)
    ends.add_argument("--for", dest="span", metavar="SPAN", help="how long: 90m, 24h, 7d")
    ends.add_argument("--until", help="an instant: 2026-12-01T00:00:00Z")
    added.set_defaults(run=add)

    listed = verbs.add_parser("list", help="suppressions, and how many alerts each silenced")
    listed.add_argument("--all", action="store_true", help="also those that are over")
    add_output_option(listed)
    listed.set_defaults(run=list_all)

    removed = verbs.add_parser("remove", help="end a suppression before its time")
    removed.add_argument("id", metavar="ID", help="as listed, or its first characters")
    removed.add_argument("--reason", help="why")
    removed.set_defaults(run=remove)
    _build_triage(subparsers)


def _build_triage(subparsers: Any) -> None:
    triage = subparsers.add_parser("triage", help="take, judge or reopen alerts")
    add_ids(triage)
    what = triage.add_mutually_exclusive_group()
    what.add_argument("--assign", metavar="NAME", help="who looks at it (default: you)")
    what.add_argument("--verdict", type=verdict_of, help=f"one of {', '.join(VERDICTS)}")
    what.add_argument("--reopen", action="store_true", help="open a closed alert again")
    triage.add_argument("--comment", help="kept on the alert")
    triage.set_defaults(run=triage_alert)


def add(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate suppress add`: prints the suppression's id."""
    from alerts.delivery.action_request import request_action
    from alerts.delivery.suppress_request import SuppressionWish, rule_pattern
    from alerts.lifecycle.suppression import ANY, SUPPRESS

    fields = _fields(args.field)
    rule, entity = rule_pattern(settings, args.rule), (args.entity or "").strip() or None
    SuppressionWish(rule, entity, fields).require_narrow()
    name = uuid.uuid4().hex
    request_action(
        settings,
        SUPPRESS,
        name,
        rule or ANY,
        value=args.owner or acting_user(),
        comment=_required_text("--reason", args.reason),
        entity=entity,
        fields=fields,
        expires_at=_end(args, datetime.now(UTC)),
    )
    print(name)
    print(f"asked to silence; {when_taken(settings)}", file=sys.stderr)
    return 0


def list_all(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate suppress list`."""
    now = datetime.now(UTC)
    rows = [_shown(row, now) for row in _known(settings)]
    shown = [row for row in rows if args.all or row["state"] == "active"]
    print_rows(shown, args.output)
    if not shown:
        ended = f"; {len(rows)} ended or expired (--all)" if rows else ""
        print(f"no suppression is active{ended}", file=sys.stderr)
    return 0


def remove(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate suppress remove ID`."""
    from alerts.delivery.action_request import request_action
    from alerts.lifecycle.suppression import UNSUPPRESS

    result = [r for r in _known(settings) if r["suppression_id"].startswith(args.id)]
    if len(result) != 1:
        problem = "no suppression" if not result else "several suppressions begin with"
        raise Usage(f"{problem} '{args.id}'; 'headgate suppress list --all' shows them")
    state = _shown(result[0], datetime.now(UTC))["state"]
    if state != "active":
        raise Usage(f"suppression {result[0]['suppression_id']} is {state} already")
    suppression = result[0]
    request_action(
        settings,
        UNSUPPRESS,
        suppression["suppression_id"],
        suppression["rule"],
        comment=args.reason,
    )
    print(f"asked to end {suppression['suppression_id']}; {when_taken(settings)}", file=sys.stderr)
    return 0


def add_ids(parser: argparse.ArgumentParser) -> None:
    """The argument for alerts, one or many; `ids_of` reads it."""
    parser.add_argument(
        "ids",
        metavar="ID",
        nargs="+",
        help="alerts, or the first characters of their ids; - reads ids from standard input",
    )


def ids_of(given: list[str]) -> list[str]:
    """The ids that were given; for `-` the words of standard input. Raises `Usage` for none."""
    ids = [name for word in given for name in (sys.stdin.read().split() if word == "-" else [word])]
    if not ids:
        raise Usage("-: standard input names no alert; give an id a line")
    return ids


def print_asked(action: str, ids: list[str], settings: Settings) -> None:
    """Tell on stderr what was asked of these alerts."""
    what = f"alert {ids[0]}" if len(ids) == 1 else f"{len(ids)} alerts"
    print(f"asked to {action} {what}; {when_taken(settings)}", file=sys.stderr)


def triage_alert(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate triage ID ...`: of all or, where one cannot be as it is asked, of none."""
    from alerts.delivery.reader import ask_about, whole_details

    alerts = whole_details(settings, ids_of(args.ids))
    for alert in alerts if args.reopen else ():
        if superseded := alert.body.get("superseded_by"):
            raise Usage(f"alert {alert.alert_id}: its findings belong to alert {superseded} now")
        if alert.body.get("state") != "closed":
            raise Usage(f"alert {alert.alert_id} is open")
    action, value = "assign", args.assign or acting_user()
    if args.reopen:
        action, value = "reopen", None
    elif args.verdict:
        action, value = "verdict", args.verdict
    for alert in alerts:
        ask_about(settings, action, alert, value=value, comment=args.comment)
    print_asked(action, [alert.alert_id for alert in alerts], settings)
    return 0


def _fields(given: list[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in given]
    for text, (name, _, pattern) in zip(given, pairs, strict=True):
        if not name or not pattern:
            raise Usage(f"--field {text}: write NAME=PATTERN, such as user.name=svc-*")
    return {name: pattern for name, _, pattern in pairs}


def _end(args: argparse.Namespace, now: datetime) -> datetime:
    from alerts.delivery.suppress_request import require_end

    if args.span is not None:
        # `since_when` reads a span as going back from now: mirrored, it goes forward.
        end = now + (now - since_when(args.span, now, "--for"))
    else:
        end = since_when(args.until, now, "--until")
    require_end(end, now)
    return end


def _required_text(option: str, text: str) -> str:
    if not text.strip():
        raise Usage(f"{option}: say why")
    return text.strip()


def _known(settings: Settings) -> list[dict[str, Any]]:
    from infra.delta.duckdb_views import AskedViews

    with AskedViews(settings.lake_root, needs=("gold.suppression", "gold.alert")) as views:
        return views.rows(_LISTED)


def _shown(row: dict[str, Any], now: datetime) -> dict[str, Any]:
    """A suppression as it is listed. Active: by the clock of who asks; the job goes by arrivals."""
    over = "expired" if row["expires_at"] <= now else "active"
    fields = row["fields"] or {}
    return {
        "suppression_id": row["suppression_id"],
        "state": "ended" if row["ended_at"] else over,
        "rule": row["rule"],
        "entity": row["entity"],
        "fields": " ".join(f"{name}={pattern}" for name, pattern in dict(fields).items()),
        "silenced": row["silenced"],
        "owner": row["owner"],
        "reason": row["reason"],
        "expires_at": row["expires_at"].astimezone(UTC).isoformat(timespec="seconds"),
        "ended_by": row["ended_by"],
    }
