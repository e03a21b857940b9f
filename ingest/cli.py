"""The commands of ingest: `sources`, `parse`, `replay`, `import`, `quality` and `reparse`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from infra.config.time_args import instant_utc
from infra.errors import Usage
from infra.process.gc_pause import no_collection
from infra.process.ordered_pool import map_in_order
from ingest.parsing.event_rows import event_rows
from ingest.parsing.ocsf_export import ocsf_object
from ingest.parsing.record_reader import RecordPiece, pieces, whole
from ingest.parsing.source import ParseSettings, Record, lookup

if TYPE_CHECKING:
    from infra.config.settings import Settings

# Small enough that no core waits long for the last of another.
BATCH_LINES = 1_000

_Parser = Callable[..., list[dict[str, Any]]]


def parser_of(
    source: str,
    tz: str | None = None,
    header: bytes | None = None,
    settings: ParseSettings | None = None,
) -> _Parser:
    """A function `(raw, now=None, record_id=...)` to the OCSF objects of a record of `source`.

    `tz` wins over what `settings` say of the source. Raises `Usage` for a source
    or zone that does not exist.
    """
    lookup(source)
    parse_settings = _with_zone(settings or ParseSettings(), source, tz)
    headers = {} if header is None else {"header": header}

    def parse(
        raw: bytes, now: datetime | None = None, record_id: str = "record"
    ) -> list[dict[str, Any]]:
        received_at = datetime.now(UTC) if now is None else now
        record = Record(record_id, source, "import", received_at, raw, headers)
        return [ocsf_object(row) for row in event_rows([record], parse_settings)]

    return parse


def build(subparsers: Any) -> None:
    """Register `parse`."""
    command = subparsers.add_parser(
        "parse", help="show what records become, one OCSF object a line"
    )
    command.add_argument("--source", required=True, help="which parser reads them: zeek:conn, ...")
    command.add_argument("--tz", help="zone of times that name none; else that of the settings")
    command.add_argument("--now", help="when the records arrived, ISO 8601 (this moment)")
    command.add_argument("--header", help="file with the header of formats that need one")
    command.add_argument("file", metavar="FILE", help="file to read, or - for standard input")
    command.set_defaults(run=parse_command)


def parse_command(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate parse`: the file's records as OCSF objects on standard output."""
    now = _moment(args.now)
    header = _bytes(args.header) if args.header else b""
    parse_settings = _with_zone(ParseSettings.of(settings), args.source, args.tz)
    source = lookup(args.source)
    work = partial(_parsed, parse_settings=parse_settings, args=args, now=now, header=header)
    # `parse ... | head` ends the pipe, which is no error.
    with suppress(BrokenPipeError), _opened(args.file) as stream:
        packed = parse_settings.format(args.source) is not None
        batches = _batches(whole(stream) if packed else pieces(stream, source, header))
        with closing(map_in_order(work, batches)) as written:
            for lines in written:
                sys.stdout.buffer.write(lines)
        sys.stdout.flush()
    return 0


def _parsed(
    batch: list[RecordPiece],
    parse_settings: ParseSettings,
    args: argparse.Namespace,
    now: datetime,
    header: bytes,
) -> bytes:
    """A batch's OCSF objects, one a line."""
    records = [
        Record(f"{args.file}:{position}", args.source, "import", now, raw, _headed(named))
        for position, raw, named, _ in batch
    ]
    encode = msgspec.json.Encoder().encode
    with no_collection():
        return b"".join(
            encode(ocsf_object(row)) + b"\n" for row in event_rows(records, parse_settings)
        )


def _headed(header: bytes) -> dict[str, bytes]:
    return {"header": header} if header else {}


def _with_zone(settings: ParseSettings, source: str, tz: str | None) -> ParseSettings:
    """`settings` with the zone that the command line names, which wins."""
    if tz is None:
        return settings
    try:
        ZoneInfo(tz)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise Usage(f"no time zone '{tz}'; use a name like Europe/Berlin or UTC") from None
    # Zones by host go too, or they would win over what was just asked for.
    return replace(settings, zones={source: tz}, host_zones={})


def _moment(text: str | None) -> datetime:
    return datetime.now(UTC) if text is None else instant_utc("--now", text)


def _bytes(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise Usage(f"{path}: cannot be read ({error.strerror})") from None


def _opened(path: str) -> BinaryIO:
    if path == "-":
        return sys.stdin.buffer
    try:
        return Path(path).open("rb")
    except OSError as error:
        raise Usage(f"{path}: cannot be read ({error.strerror})") from None


def _batches(records: Iterator[RecordPiece]) -> Iterator[list[RecordPiece]]:
    batch: list[RecordPiece] = []
    for record in records:
        batch.append(record)
        if len(batch) == BATCH_LINES:
            yield batch
            batch = []
    if batch:
        yield batch


def main(argv: list[str]) -> int:
    """Run a command of this folder; raises `Usage` where it was called wrongly."""
    from infra.config.settings import load

    parser = argparse.ArgumentParser(prog="headgate")
    build(parser.add_subparsers(required=True, metavar="COMMAND"))
    args = parser.parse_args(argv)
    run: Callable[[argparse.Namespace, Settings], int] = args.run
    return run(args, load())
