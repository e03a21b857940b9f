"""`headgate rules new`."""

from __future__ import annotations

import argparse
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from alerts.cli.explain import asking
from alerts.cli.output import since_when
from alerts.domain.levels import SEVERITY_BY_LEVEL
from alerts.rulebook.raw_lines import require_source, rows_of_line, rows_of_lines
from alerts.rulebook.rule_draft import MOST_EVENTS, DraftOptions, RawTest, drafted, tests_of_events
from infra.config.settings import Settings
from infra.errors import Usage


def build(verbs: Any) -> None:
    """Add `new`."""
    new = verbs.add_parser("new", help="a Sigma rule with tests, made from chosen events")
    new.add_argument("file", metavar="FILE", help="where to write it, or - for stdout")
    new.add_argument(
        "--event", nargs="+", default=[], metavar="UID", help="event_uid of events in the lake"
    )
    new.add_argument(
        "--since", metavar="WHEN", help="events from then on: an instant, or 24h, 7d (quicker)"
    )
    new.add_argument("--source", help="source of raw lines (headgate sources), which need no lake")
    new.add_argument(
        "--lines", metavar="FILE", default="-", help="the raw lines (default: -, stdin)"
    )
    new.add_argument("--title", default="", help="default: from the kind of event")
    new.add_argument(
        "--level", choices=tuple(SEVERITY_BY_LEVEL), default="medium", help="default: medium"
    )
    new.set_defaults(run=new_rule)


def new_rule(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate rules new FILE`: never writes over a file."""
    if bool(args.event) == bool(args.source):
        raise Usage("name events of the lake with --event, or a source of raw lines with --source")
    path = None if args.file == "-" else Path(args.file)
    if path is not None:
        _require_free(path)
    if args.event:
        tests = _from_lake(args.event, args.since, settings)
    else:
        tests = _from_lines(args.source, args.lines)
    if len(tests) > MOST_EVENTS:
        raise Usage(f"{len(tests)} events; a rule is made from at most {MOST_EVENTS}")
    stem = "new_rule" if path is None else path.stem
    name = re.sub(r"\W+", "_", stem, flags=re.ASCII).strip("_").lower() or "new_rule"
    text = drafted(tests, DraftOptions(name, args.title, args.level))
    if path is None:
        print(text, end="")
        return 0
    try:
        # "x": of two that write at once only one does.
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise Usage(f"{path}: {error.strerror}") from None
    print(
        f"{path}: {len(tests)} tests pass; edit it, then 'headgate rules test {path}'",
        file=sys.stderr,
    )
    return 0


def _require_free(path: Path) -> None:
    if path.suffix not in (".yml", ".yaml"):
        raise Usage(f"{path}: a file of Sigma rules ends with .yml")
    if path.exists():
        raise Usage(f"{path} is there already; it is not written over")
    if not path.parent.is_dir():
        raise Usage(f"{path.parent}: no such folder")


def _from_lines(source: str, file: str) -> list[RawTest]:
    """The records of a file; lines that are parts of one event together, as auditd writes them."""
    require_source(source)
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        text = data.decode("utf-8")
    except OSError as error:
        raise Usage(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Usage(f"{file}: it is no text in UTF-8") from None
    lines = {str(n): line for n, line in enumerate(re.split("\r?\n", text), 1) if line.strip()}
    if not lines:
        raise Usage(f"{file}: no line is in it")
    rows = rows_of_lines(source, {number: line.encode() for number, line in lines.items()})
    dead = next((row for row in rows if row.get("dead_letter_reason")), None)
    if dead is None:
        parts = dict.fromkeys(tuple(row["record_ids"]) for row in rows)
        return [RawTest(source, "\n".join(lines[number] for number in part)) for part in parts]
    # One record over several lines, such as XML or JSON that is written out.
    whole = text.strip()
    if any(row.get("dead_letter_reason") for row in rows_of_line(source, whole.encode())):
        number, reason = dead["record_ids"][0], dead["dead_letter_reason"]
        raise Usage(f"{file}, line {number}: {source} cannot read it: {reason}")
    return [RawTest(source, whole)]


def _from_lake(uids: list[str], since: str | None, settings: Settings) -> list[RawTest]:
    """The raw records of events, in the order in which the events are named."""
    begin = datetime.min.replace(tzinfo=UTC)
    if since is not None:
        begin = since_when(since, datetime.now(UTC))
    with asking(settings) as ask:
        return tests_of_events(ask, uids, begin)
