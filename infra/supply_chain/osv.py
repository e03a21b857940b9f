"""Known vulnerabilities of components, from records of the OSV database.

Form of a record and how ranges are read: https://ossf.github.io/osv-schema/.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from infra.errors import Retryable, Usage
from infra.supply_chain.sbom import Component

_Record = Mapping[str, Any]

# OSV takes a thousand at once.
_MOST_QUERIES = 500
_TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True)
class Vulnerability:
    """A vulnerability that a component has."""

    id: str
    aliases: tuple[str, ...]
    component: str
    version: str
    fixed: str
    """Versions without it, as far as the record says."""
    summary: str


def records(paths: Iterable[Path]) -> Iterator[_Record]:
    """The records of dumps (zip files of JSON files), folders, or single JSON files."""
    for path in paths:
        if path.is_dir():
            yield from (_read(file, file.read_bytes()) for file in sorted(path.rglob("*.json")))
        elif zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                for name in archive.namelist():
                    if name.endswith(".json"):
                        yield _read(path, archive.read(name))
        elif path.is_file():
            yield _read(path, path.read_bytes())
        else:
            raise Usage(f"{path}: no such file or folder")


def _read(path: Path, text: bytes) -> _Record:
    try:
        decoded = json.loads(text)
        return {"id": str(decoded["id"]), **decoded}
    except (ValueError, KeyError, TypeError):
        raise Usage(f"{path}: holds what is no record of OSV") from None


def query_osv(components: Iterable[Component], url: str) -> Iterator[_Record]:
    """The records that a server with OSV's interface has about components.

    Interface: https://google.github.io/osv.dev/api/. Raises `Retryable` when it does not answer.
    """
    component_list = list(components)
    ids: set[str] = set()
    for index in range(0, len(component_list), _MOST_QUERIES):
        queries = [
            {"package": {"purl": component.purl}}
            for component in component_list[index : index + _MOST_QUERIES]
        ]
        answer = _asked(f"{url}/v1/querybatch", {"queries": queries})
        # Results belong to the questions by their order alone.
        if len(answer.get("results", ())) != len(queries):
            raise Retryable(f"{url}: answered {len(queries)} questions with another number")
        for result in answer["results"]:
            if result.get("next_page_token"):
                raise Retryable(f"{url}: gave only a part of its answer; use a dump (OSV=FILE)")
            ids |= {str(vuln["id"]) for vuln in result.get("vulns") or ()}
    for name in sorted(ids):
        yield _asked(f"{url}/v1/vulns/{quote(name, safe='')}")


def _asked(url: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = Request(url, data, {"Content-Type": "application/json"})
    try:
        with urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:
            load: dict[str, Any] = json.load(answer)
            return load
    except (OSError, ValueError) as error:
        raise Retryable(f"{url} does not answer ({error})") from None


def known_vulnerabilities(
    components: Iterable[Component], given: Iterable[_Record]
) -> list[Vulnerability]:
    """The vulnerabilities among `given` that components have, by component; none withdrawn."""
    by_name: dict[tuple[str, str], list[Component]] = {}
    for component in components:
        by_name.setdefault(_key(component), []).append(component)
    knowns: dict[tuple[str, str], Vulnerability] = {}
    for record in given:
        for part in () if record.get("withdrawn") else record.get("affected", ()):
            for component in by_name.get(_named(part.get("package") or {}), ()):
                if affects(part, component):
                    knowns[component.purl, record["id"]] = _vulnerability(record, part, component)
    return [knowns[key] for key in sorted(knowns)]


def _key(component: Component) -> tuple[str, str]:
    if component.kind == "pypi":
        return "PyPI", canonicalize_name(component.name)
    return "Maven", f"{component.group}:{component.name}"


def _named(package: Mapping[str, Any]) -> tuple[str, str]:
    # An ecosystem may name its release, as in `Debian:12`.
    ecosystem = str(package.get("ecosystem", "")).partition(":")[0]
    name = str(package.get("name", ""))
    return ecosystem, canonicalize_name(name) if ecosystem == "PyPI" else name


def affects(part: Mapping[str, Any], component: Component) -> bool:
    """Whether an `affected` part of a record covers a component's version."""
    if component.version in part.get("versions", ()):
        return True
    at_least = _pypi_at_least if component.kind == "pypi" else _maven_at_least
    return any(
        _inside(span.get("events", ()), component.version, at_least)
        for span in part.get("ranges", ())
        # Ranges of commits (GIT) say nothing of the versions that were released from them.
        if span.get("type") in ("ECOSYSTEM", "SEMVER")
    )


AtLeast = Callable[[str, str], bool]
"""Whether the first version is the second one or newer."""


def _inside(events: Iterable[Mapping[str, str]], version: str, at_least: AtLeast) -> bool:
    """Whether a version lies in a range: the last event at or before it decides."""
    inside = False
    for event in events:  # in the order of versions, as the form demands
        for kind, bound in event.items():
            past = kind == "last_affected" and not at_least(bound, version)
            if kind == "introduced" and (bound == "0" or at_least(version, bound)):
                inside = True
            elif past or (kind == "fixed" and at_least(version, bound)):
                inside = False
    return inside


def _pypi_at_least(version: str, bound: str) -> bool:
    try:
        return Version(version) >= Version(bound)
    except InvalidVersion:
        return True  # a bound that cannot be read must not hide a vulnerability


# Maven's own: a snapshot stands just before its release, a service pack just behind it.
_ORDER = {"alpha": 0, "a": 0, "beta": 1, "b": 1, "milestone": 2, "m": 2, "rc": 3, "cr": 3}
_ORDER |= {"snapshot": 4, "": 5, "final": 5, "ga": 5, "release": 5, "sp": 6}


def _maven_at_least(version: str, bound: str) -> bool:
    """Order of versions: https://maven.apache.org/pom.html#version-order-specification.

    Dots and hyphens are taken as the same, which differs only for versions with both
    in one place.
    """
    mine, theirs = _tokens(version), _tokens(bound)
    for index in range(max(len(mine), len(theirs))):
        left = mine[index] if index < len(mine) else _nothing(theirs[index])
        right = theirs[index] if index < len(theirs) else _nothing(mine[index])
        if left != right:
            return left > right
    return True


_Token = tuple[int, int, str]
"""Qualifiers known to Maven come first, then others by name, then numbers."""


def _tokens(version: str) -> list[_Token]:
    findall = re.findall(r"\d+|[a-z]+", version.lower())
    return [
        (2, int(text), "")
        if text.isdecimal()
        else (0, _ORDER[text], "")
        if text in _ORDER
        else (1, 0, text)
        for text in findall
    ]


def _nothing(other: _Token) -> _Token:
    """What stands for a missing token: 0 beside a number, the release beside a qualifier."""
    return (2, 0, "") if other[0] == 2 else (0, _ORDER[""], "")


def _vulnerability(record: _Record, part: Mapping[str, Any], component: Component) -> Vulnerability:
    fixed = [
        event["fixed"]
        for span in part.get("ranges", ())
        for event in span.get("events", ())
        if "fixed" in event
    ]
    return Vulnerability(
        id=record["id"],
        aliases=tuple(record.get("aliases", ())),
        component=component.purl,
        version=component.version,
        fixed=", ".join(dict.fromkeys(fixed)),
        summary=str(record.get("summary") or record.get("details") or "").split("\n")[0][:200],
    )
