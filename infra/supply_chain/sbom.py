"""What Headgate is made of, as CycloneDX 1.6 (https://cyclonedx.org/docs/1.6/json/).

From the lock file, the pinned Java archives and those inside pyspark. The same installation
gives the same bytes: no time of day is in it, and its serial number is made from the content.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
import uuid
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution, requires
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from infra.errors import Fatal
from infra.process import java_jars

OWN = "headgate"
LOCK = Path(__file__).resolve().parents[2] / "requirements.lock"

_JAR = re.compile(r"(?P<name>.+?)-(?P<version>\d[\w.+-]*)")
_MANIFEST = "META-INF/MANIFEST.MF"
_POM = re.compile(r"META-INF/maven/([^/]+)/([^/]+)/pom\.(properties|xml)")


@dataclass(frozen=True)
class Component:
    """A package that is used. `group` is Maven's; empty for Python's, and where nobody says it."""

    kind: str
    group: str
    name: str
    version: str
    licences: tuple[str, ...] = ()
    expression: str = ""
    """The licence as an SPDX expression, where the package says it so."""
    sha256: str = ""
    accepted: tuple[str, ...] = ()
    """SHA-256 of each file that the lock file accepts for it."""
    needs: tuple[str, ...] = field(default=(), compare=False)

    @property
    def purl(self) -> str:
        """Its package URL, which also names it inside the document."""
        space = f"{quote(self.group, safe='.')}/" if self.group else ""
        version = quote(self.version, safe="")
        return f"pkg:{self.kind}/{space}{quote(self.name, safe='._-')}@{version}"


def components() -> list[Component]:
    """All of them, by package URL. Raises `Fatal` when one is not installed as it is locked."""
    if not LOCK.exists():
        raise Fatal(f"{LOCK}: no such file; the audit runs from the source checkout")
    if absent := java_jars.missing():
        raise Fatal(f"{absent[0].file} is missing; run 'headgate doctor --fix'")
    pinned = [
        _archive(java_jars.jars_folder() / jar.used_by / jar.file, jar.group, jar.name, jar.version)
        for jar in java_jars.locked()
    ]
    result = [*packages(LOCK.read_text("utf-8")), *pinned, *_bundled()]
    return sorted(
        {component.purl: component for component in result}.values(),
        key=lambda component: component.purl,
    )


def packages(lock: str) -> Iterator[Component]:
    """Python packages of a lock file that this platform needs, with what is installed of them."""
    # An entry is folded over lines that end in a backslash; each begins at the left margin.
    for entry in re.split(r"\n(?=[A-Za-z0-9])", lock.replace("\\\n", " ")):
        strip = re.sub(r"\s+#.*|^#.*", "", entry, flags=re.M).strip()
        if not strip:
            continue
        requirement = Requirement(re.split(r"\s--hash", strip)[0])
        if requirement.marker is not None and not requirement.marker.evaluate():
            continue
        version = str(requirement.specifier).removeprefix("==")
        hashes = tuple(sorted(re.findall(r"--hash=sha256:([0-9a-f]{64})", strip)))
        yield _package(canonicalize_name(requirement.name), version, hashes)


def _package(name: str, version: str, hashes: tuple[str, ...]) -> Component:
    try:
        installed = distribution(name)
    except PackageNotFoundError:
        raise Fatal(f"{name} {version} is locked and not installed; run 'make setup'") from None
    if installed.version != version:
        raise Fatal(
            f"{name}: {installed.version} is installed, {version} is locked; run 'make setup'"
        )
    expression, licences = _licences_of(installed)
    needs = tuple(_needs(installed.requires or ()))
    return Component("pypi", "", name, version, licences, expression, "", hashes, needs)


def _needs(requirements: Iterable[str]) -> Iterator[str]:
    for text in requirements:
        requirement = Requirement(text)
        # Without any extra: what only one of those asks for is no need of the package itself.
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield canonicalize_name(requirement.name)


def _licences_of(distribution: Distribution) -> tuple[str, tuple[str, ...]]:
    metadata = distribution.metadata
    for expression in metadata.get_all("License-Expression") or ():
        return str(expression), ()
    named = [
        text.rsplit(" :: ", 1)[1]
        for text in metadata.get_all("Classifier") or ()
        # A classifier that ends there says that there is a licence, and not which.
        if text.startswith("License :: ") and not text.endswith("OSI Approved")
    ]
    line = "".join(metadata.get_all("License") or ()).strip()
    # Some put the whole text of the licence there.
    return "", tuple(named) or ((line,) if line and "\n" not in line else ())


@cache
def _bundled() -> tuple[Component, ...]:
    """The archives that come inside pyspark: most of what runs in the JVM."""
    message = tomllib.loads(Path(__file__).with_name("sbom.toml").read_text("utf-8"))["groups"]
    groups = {name: group for group, names in message.items() for name in names}
    components = []
    for path in sorted(Path(str(files("pyspark").joinpath("jars"))).glob("*.jar")):
        name, version = _parts(path.stem, groups)
        components.append(_archive(path, groups.get(name, ""), name, version))
    return tuple(components)


def _parts(stem: str, names: Iterable[str]) -> tuple[str, str]:
    """Name and version of an archive's file: cut before the first digit, or after a known name."""
    # The longest first: one known name may be the beginning of another.
    for name in sorted(names, key=len, reverse=True):
        if re.match(r"-\d", stem.removeprefix(name)):
            return name, stem[len(name) + 1 :]
    named = _JAR.fullmatch(stem)
    return (named["name"], named["version"]) if named else (stem, "0")


def _archive(path: Path, group: str, name: str, version: str) -> Component:
    """A Java archive; where the caller knows no group, that of the Maven file inside it."""
    licences: tuple[str, ...] = ()
    with zipfile.ZipFile(path) as archive:
        for entry in archive.namelist():
            inside = _POM.fullmatch(entry)
            if inside and inside[2] == name:
                group = group or inside[1]
                if inside[3] == "xml":
                    licences = tuple(_pom_licences(archive.read(entry)))
        if not licences and _MANIFEST in archive.namelist():
            licences = tuple(_bundle_licence(archive.read(_MANIFEST)))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Component("maven", group, name, version, licences, sha256=digest)


def _bundle_licence(manifest: bytes) -> Iterator[str]:
    """The header Bundle-License of OSGi: names or addresses, of which the first is taken."""
    # A manifest folds long lines; what goes on begins with a blank.
    whole = re.sub(r"\r?\n ", "", manifest.decode("utf-8", "replace"))
    if match := re.search(r"^Bundle-License: *\"?([^;,\"\r\n]+)", whole, re.M):
        yield match[1].strip()


def _pom_licences(pom: bytes) -> Iterator[str]:
    try:
        root = ElementTree.fromstring(pom)
    except ElementTree.ParseError:
        return
    for name in root.iterfind("{*}licenses/{*}license/{*}name"):
        if name.text and name.text.strip():
            yield " ".join(name.text.split())


def document(components: Iterable[Component], version: str) -> dict[str, Any]:
    """The components as a CycloneDX document."""
    listed = list(components)
    body: dict[str, Any] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": OWN,
                "name": OWN,
                "version": version,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        },
        "components": [_component(component) for component in listed],
        "dependencies": _dependencies(listed),
    }
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    return body | {"serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, digest)}"}


def _component(component: Component) -> dict[str, Any]:
    lines: dict[str, Any] = {
        "type": "library",
        "bom-ref": component.purl,
        "name": component.name,
        "version": component.version,
        "purl": component.purl,
    }
    if component.group:
        lines["group"] = component.group
    if component.sha256:
        lines["hashes"] = _hashes([component.sha256])
    if component.expression:
        lines["licenses"] = [{"expression": component.expression}]
    elif component.licences:
        lines["licenses"] = [{"license": _licence(name)} for name in component.licences]
    if component.accepted:
        lines["externalReferences"] = [
            {
                "type": "distribution",
                "url": component.purl,
                "comment": "files that requirements.lock accepts",
                "hashes": _hashes(component.accepted),
            }
        ]
    return lines


_SPDX = {
    r"apache\b.*\b2(\.0)?(\.txt|\.html)?|apache-2\.0": "Apache-2.0",
    r"(the )?mit( licen[sc]e)?": "MIT",
}


def _licence(text: str) -> dict[str, str]:
    """A licence under its SPDX id where what the package says can mean only one."""
    for pattern, spdx_id in _SPDX.items():
        if re.fullmatch(rf"(https?://(www\.)?|the )?({pattern})", text, re.I):
            return {"id": spdx_id}
    return {"name": text}


def _hashes(values: Iterable[str]) -> list[Mapping[str, str]]:
    return [{"alg": "SHA-256", "content": value} for value in values]


def _dependencies(components: list[Component]) -> list[dict[str, Any]]:
    """Who needs whom: as the packages say; pyspark brings the archives inside it along."""
    python = {
        component.name: component.purl for component in components if component.kind == "pypi"
    }
    inside = {component.purl for component in _bundled()}
    java = [component.purl for component in components if component.kind == "maven"]
    edges = {
        component.purl: {python[name] for name in component.needs if name in python}
        for component in components
    }
    if "pyspark" in python:
        edges[python["pyspark"]] |= inside & set(java)
    own = {python[name] for name in _needs(requires(OWN) or ()) if name in python}
    edges[OWN] = own | (set(java) - inside)
    return [{"ref": ref, "dependsOn": sorted(needed)} for ref, needed in sorted(edges.items())]
