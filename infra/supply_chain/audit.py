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
from infra.supply_chain.osv import Vulnerability, known_vulnerabilities, query_osv, records
from infra.supply_chain.sbom import OWN, Component, components, document

ACCEPTED = Path(__file__).with_name("accepted.toml")
_SERVER = "https://api.osv.dev"
_COLUMNS = ("id", "component", "fixed", "summary")


def main(argv: Sequence[str] | None = None) -> int:
    """Write the bill of materials, look each component up, and say what is open."""
    parser = argparse.ArgumentParser(prog="python -m infra.supply_chain.audit")
    parser.add_argument("--sbom", type=Path, help="write it here, as CycloneDX 1.6 in JSON")
    parser.add_argument(
        "--osv", type=Path, nargs="+", default=[], help="dumps or folders of OSV records"
    )
    parser.add_argument("--server", default=_SERVER, help="asked where no dump is given")
    add_output_option(parser)
    arguments = parser.parse_args(argv)
    try:
        return _audit(arguments)
    except HeadgateError as error:
        print(f"audit: {error}", file=sys.stderr)
        return error.exit_code


def _audit(arguments: argparse.Namespace) -> int:
    result = components()
    if arguments.sbom is not None:
        dumps = json.dumps(document(result, version(OWN)), indent=1, ensure_ascii=False)
        write_whole(arguments.sbom, dumps + "\n")
        print(f"audit: {len(result)} components in {arguments.sbom}", file=sys.stderr)
    # Without a group no database can be asked for an archive: it is named, not passed over.
    nameless = [
        component.purl for component in result if component.kind == "maven" and not component.group
    ]
    vulnerable = known_vulnerabilities(result, _records(arguments, result))
    accepted = accepted_today(ACCEPTED.read_text("utf-8"), datetime.now(UTC).date())
    still = [
        component
        for component in vulnerable
        if not {component.id, *component.aliases} & set(accepted)
    ]
    _show(still, arguments.output)
    print(
        f"audit: {len(result) - len(nameless)} components checked, {len(vulnerable)} known "
        f"vulnerabilities, {len(vulnerable) - len(still)} of them accepted",
        file=sys.stderr,
    )
    for purl in nameless:
        print(f"audit: {purl}: not checked, its Maven group is not known", file=sys.stderr)
    return 1 if still or nameless else 0


def _records(
    arguments: argparse.Namespace, components: Sequence[Component]
) -> list[Mapping[str, object]]:
    if arguments.osv:
        return list(records(arguments.osv))
    try:
        return list(
            query_osv(
                [
                    component
                    for component in components
                    if component.kind == "pypi" or component.group
                ],
                arguments.server,
            )
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
    results = {}
    for entry in tomllib.loads(text).get("accepted", ()):
        given = entry.get("id"), entry.get("until"), entry.get("reason")
        name, until, reason = given
        if not name or not isinstance(until, date) or not reason:
            raise Usage(f"{ACCEPTED.name}: an entry wants id, until (a day) and reason: {entry}")
        if today <= until:
            results[str(name)] = str(reason)
    return results


def _show(vulnerabilities: Sequence[Vulnerability], form: str) -> None:
    rows = [asdict(vulnerability) for vulnerability in vulnerabilities]
    every = ("id", "aliases", "component", "version", "fixed", "summary")
    print_rows(rows, form, _COLUMNS if form == "table" else every)


if __name__ == "__main__":
    sys.exit(main())
