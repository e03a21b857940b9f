"""`make audit`: what Headgate is made of, and which of it is known to be vulnerable.

    python -m infra.supply_chain.audit --sbom FILE [--osv DUMP ...]

Exit code 0 only when all was checked and nothing is open; 1 when something is, or when no
database could be asked; 2 when called wrongly.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, date, datetime
from importlib.metadata import version
from pathlib import Path

from infra.errors import HeadgateError, Retryable, Usage
from infra.process.table_output import add_output_option, print_rows
from infra.storage.atomic_files import write_whole
from infra.supply_chain.osv import Known, ask, known, records
from infra.supply_chain.sbom import OWN, Component, components, document

ACCEPTED = Path(__file__).with_name("accepted.toml")
SERVER = "https://api.osv.dev"
COLUMNS = ("id", "component", "fixed", "summary")


def main(argv: Sequence[str] | None = None) -> int:
    """Write the bill of materials, look each component up, and say what is open."""
    parser = argparse.ArgumentParser(prog="python -m infra.supply_chain.audit")
    parser.add_argument("--sbom", type=Path, help="write it here, as CycloneDX 1.6 in JSON")
    parser.add_argument(
        "--osv", type=Path, nargs="+", default=[], help="dumps or folders of OSV records"
    )
    parser.add_argument("--server", default=SERVER, help="asked where no dump is given")
    add_output_option(parser)
    arguments = parser.parse_args(argv)
    try:
        return _audit(arguments)
    except HeadgateError as error:
        print(f"audit: {error}", file=sys.stderr)
        return error.exit_code


def _audit(arguments: argparse.Namespace) -> int:
    found = components()
    if arguments.sbom is not None:
        told = json.dumps(document(found, version(OWN)), indent=1, ensure_ascii=False)
        write_whole(arguments.sbom, told + "\n")
        print(f"audit: {len(found)} components in {arguments.sbom}", file=sys.stderr)
    # Without a group no database can be asked for an archive: it is named, not passed over.
    nameless = [one.purl for one in found if one.kind == "maven" and not one.group]
    vulnerable = known(found, _records(arguments, found))
    accepted = accepted_today(ACCEPTED.read_text("utf-8"), datetime.now(UTC).date())
    still = [one for one in vulnerable if not {one.id, *one.aliases} & set(accepted)]
    _show(still, arguments.output)
    print(
        f"audit: {len(found) - len(nameless)} components checked, {len(vulnerable)} known "
        f"vulnerabilities, {len(vulnerable) - len(still)} of them accepted",
        file=sys.stderr,
    )
    for purl in nameless:
        print(f"audit: {purl}: not checked, its Maven group is not known", file=sys.stderr)
    return 1 if still or nameless else 0


def _records(
    arguments: argparse.Namespace, found: Sequence[Component]
) -> list[Mapping[str, object]]:
    if arguments.osv:
        return list(records(arguments.osv))
    try:
        return list(
            ask([one for one in found if one.kind == "pypi" or one.group], arguments.server)
        )
    except Retryable as error:
        raise Retryable(
            f"NOT CHECKED for vulnerabilities: {error}; fetch the dumps of PyPI and Maven from "
            "osv.dev and give them: make audit OSV='PyPI.zip Maven.zip'"
        ) from None


def accepted_today(text: str, today: date) -> dict[str, str]:
    """Reason by id of what is passed over today, from the text of `accepted.toml`.

    Raises `Usage` for an entry without an id, a day, or a reason.
    """
    found = {}
    for entry in tomllib.loads(text).get("accepted", ()):
        given = entry.get("id"), entry.get("until"), entry.get("reason")
        name, until, reason = given
        if not name or not isinstance(until, date) or not reason:
            raise Usage(f"{ACCEPTED.name}: an entry wants id, until (a day) and reason: {entry}")
        if today <= until:
            found[str(name)] = str(reason)
    return found


def _show(found: Sequence[Known], form: str) -> None:
    rows = [asdict(one) for one in found]
    every = ("id", "aliases", "component", "version", "fixed", "summary")
    print_rows(rows, form, COLUMNS if form == "table" else every)


if __name__ == "__main__":
    sys.exit(main())
