"""Command `erase`: a person or a device out of all tables, with a certificate."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from infra.delta.duckdb_views import require_lake
from infra.process.priority import stand_back

if TYPE_CHECKING:
    from infra.config.settings import Settings
    from reporting.erasure.request import ErasureRequest

_NICE = 10
"""Other processes of the machine go first, as the live jobs are among them."""


def build(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `erase` to the command."""
    parser = subparsers.add_parser(
        "erase",
        help="take a person or a device out of all tables, while the jobs run",
        description="Removes the rows that name somebody, or with --pseudonymise only the names, "
        "in all layers, and writes a certificate to <home>/erasures. Alerts stay, without the "
        "names. Killed or interrupted, the same command goes on where it was.",
    )
    who = parser.add_mutually_exclusive_group(required=True)
    who.add_argument("--user", metavar="NAME", help="a person, by account; aliases come along")
    who.add_argument("--device", metavar="MAC", help="a device, by its hardware address")
    parser.add_argument("--hostnames", action="store_true", help="the device's host names as well")
    parser.add_argument(
        "--except", dest="but", action="append", default=[], metavar="TEXT",
        help="a name of theirs that stays, as others have it as well",
    )  # fmt: skip
    parser.add_argument(
        "--also", action="append", default=[], metavar="TEXT",
        help="a further name of theirs, which no inventory has",
    )  # fmt: skip
    parser.add_argument("--pseudonymise", action="store_true", help="keep rows, replace the names")
    parser.add_argument("--reason", help="why, for the certificate; name nobody in it")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
    parser.add_argument("--yes", action="store_true", help="do it; it cannot be undone")
    parser.add_argument(
        "--vacuum", action="store_true", help="delete the files of former versions at once"
    )
    parser.add_argument("--output", choices=("text", "json"), default="text")
    parser.set_defaults(run=_erase)


def _erase(arguments: argparse.Namespace, settings: Settings) -> int:
    from infra.spark.session import session
    from infra.streaming.lake import Lake
    from reporting.erasure.certificate import sentences
    from reporting.erasure.request import (
        ErasureRequest,
        require_request,
        subject_names,
        subject_words,
    )
    from reporting.erasure.run import erase, preview_erasure

    kind, name = ("user", arguments.user) if arguments.user else ("device", arguments.device)
    request = ErasureRequest(
        "user" if kind == "user" else "device",
        name,
        arguments.pseudonymise,
        arguments.hostnames,
        tuple(arguments.but),
        tuple(arguments.also),
        arguments.reason,
    )
    require_request(request, yes=arguments.yes, dry=arguments.dry_run)
    require_lake(settings.lake_root)
    subject_words(
        request, subject_names(settings, request), ""
    )  # what is refused is so before a JVM starts
    stand_back(_NICE)
    # It lists files and commits: Arrow rewrites the rows, so Spark gets by with little.
    small = settings.spark.model_copy(update={"driver_memory": "1g"})
    spark = session(settings.model_copy(update={"spark": small}), "headgate-erase")
    try:
        lake = Lake(spark, settings)
        if arguments.dry_run:
            preview_rows = preview_erasure(lake, request, _progress)
            lines = _previewed(preview_rows, request)
        else:
            preview_rows = erase(lake, request, _progress, vacuum=arguments.vacuum)
            lines = sentences(preview_rows)
    finally:
        spark.stop()
    print(
        json.dumps(preview_rows, ensure_ascii=False)
        if arguments.output == "json"
        else "\n".join(lines)
    )
    return 0 if arguments.dry_run or finished_erasure(preview_rows) else 1


def finished_erasure(certificate: Mapping[str, Any]) -> bool:
    """Whether nothing is left that a later run would still have to do."""
    behind = certificate["jobs_behind"] or not certificate["settled"]
    waits = certificate["unpublished"] or certificate["undelivered"]
    return not (behind or waits) and all(
        isinstance(done, int) for done in certificate["outside"].values()
    )


def _previewed(preview: Mapping[str, Any], request: ErasureRequest) -> Iterator[str]:
    yield f"Words: {', '.join(preview['words'])}"
    for table, counts in preview["tables"].items():
        yield (
            f"{table}: {counts['removed']:,} rows would be removed, {counts['replaced']:,} "
            f"reworded, in {counts['files']:,} files"
        )
    if not preview["tables"]:
        yield "No table has a row that names it."
    places = ", ".join(f"{place}: {preview[place]}" for place in ("spool", "webhooks", "answers"))
    yield f"{places} would be reworded"
    yield (
        f"results of searches, tries of rules and evidence: {preview['results']} would be removed, "
        "whomever they are of"
    )
    yield from (f"index {name} of the inventories would be removed" for name in preview["indexes"])
    yield from (f"file {name} names it and would not be touched" for name in preview["files"])
    yield f"To do it: the same with --yes{' (rows stay)' if request.pseudonymise else ''}"


def _progress(sentence: str) -> None:
    if sys.stderr.isatty():
        print(sentence, file=sys.stderr, flush=True)
