"""The Java archives Spark and the broker need: pinned, checked, resolved once.

`jars.toml` lists each with its SHA-256. They are fetched by the Ivy that ships
inside pyspark, so its proxies and mirrors apply; afterwards nothing goes out.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import tomllib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from infra.errors import Fatal, Retryable
from infra.process import jdk

_LOCK = Path(__file__).with_name("jars.toml")

_SETTINGS = """<ivysettings><settings defaultResolver="default"/>
<caches defaultCacheDir="{cache}"/>
<resolvers><ibiblio name="default" m2compatible="true"/></resolvers></ivysettings>"""


@dataclass(frozen=True)
class Jar:
    """One archive: who needs it, its Maven coordinates and its checksum."""

    used_by: str
    group: str
    name: str
    version: str
    sha256: str

    @property
    def file(self) -> str:
        """File name it is kept under."""
        return f"{self.name}-{self.version}.jar"


def locked() -> tuple[Jar, ...]:
    """All archives of `jars.toml`."""
    entries = tomllib.loads(_LOCK.read_text("utf-8"))["jar"]
    return tuple(Jar(**entry) for entry in entries)


def jars_folder() -> Path:
    """Where the archives are kept: `HEADGATE_JARS`, the checkout's own folder, or a user cache."""
    named = os.environ.get("HEADGATE_JARS")
    if named:
        return Path(named)
    checkout = Path(__file__).resolve().parents[2]
    if (checkout / "pyproject.toml").exists():
        return checkout / ".headgate-jars"
    return Path.home() / ".cache" / "headgate" / "jars"


def paths(used_by: str) -> list[Path]:
    """The archives of `spark` or `broker`; raises `Fatal` when they are not there yet."""
    result = [jars_folder() / used_by / jar.file for jar in locked() if jar.used_by == used_by]
    for path in result:
        if not path.exists():
            raise Fatal(f"{path.name} is missing in {path.parent}; run 'headgate doctor --fix'")
    return result


def missing(jars: Collection[Jar] | None = None) -> list[Jar]:
    """Archives, all of the lock if none are given, that are not there or whose bytes are not the
    pinned ones."""
    return [
        jar
        for jar in (locked() if jars is None else jars)
        if _digest(jars_folder() / jar.used_by / jar.file) != jar.sha256
    ]


def resolve(jars: Collection[Jar] | None = None) -> int:
    """Fetch what is missing, as `missing` says, and check it; returns how many were fetched."""
    lacking = missing(jars)
    # One at a time: Spark and the broker need the same archive in two versions, of which a
    # single resolution would keep the newer one only.
    for used_by in sorted({jar.used_by for jar in lacking}):
        _resolve([jar for jar in lacking if jar.used_by == used_by])
    return len(lacking)


def _resolve(lacking: list[Jar]) -> None:
    with tempfile.TemporaryDirectory(prefix="headgate-ivy-") as name:
        work = Path(name)
        _fetch(lacking, work)
        for jar in lacking:
            fetched = work / "out" / jar.file
            if _digest(fetched) != jar.sha256:
                raise Fatal(
                    f"{jar.group}:{jar.name}:{jar.version}: the archive fetched is not the pinned "
                    f"one (SHA-256 {_digest(fetched)}); nothing was installed"
                )
            target = jars_folder() / jar.used_by / jar.file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(fetched, target)


def _fetch(lacking: list[Jar], work: Path) -> None:
    import pyspark

    ivy = next(Path(pyspark.__file__).parent.joinpath("jars").glob("ivy-*.jar"))
    (work / "settings.xml").write_text(_SETTINGS.format(cache=work / "cache"))
    (work / "ivy.xml").write_text("\n".join(_module(lacking)))
    subprocess.run(
        [
            *(jdk.require_java(), "-cp", str(ivy), "org.apache.ivy.Main"),
            *("-settings", str(work / "settings.xml"), "-ivy", str(work / "ivy.xml")),
            *("-types", "jar", "bundle"),
            *("-retrieve", str(work / "out" / "[artifact]-[revision].[ext]")),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    absent = [jar.file for jar in lacking if not (work / "out" / jar.file).exists()]
    if absent:
        raise Retryable(
            f"{len(absent)} of {len(lacking)} Java archives could not be fetched, such as "
            f"{absent[0]}; is the Maven repository reachable?"
        )


def _module(lacking: list[Jar]) -> Iterator[str]:
    yield '<ivy-module version="2.0"><info organisation="headgate" module="jars"/><dependencies>'
    for jar in lacking:
        yield (
            f'<dependency org="{jar.group}" name="{jar.name}" rev="{jar.version}" '
            # Each archive is pinned by itself; one that Ivy added would not be.
            'transitive="false" conf="default->master"/>'
        )
    yield "</dependencies></ivy-module>"


def _digest(path: Path) -> str:
    if not path.exists():
        return "missing"
    return hashlib.sha256(path.read_bytes()).hexdigest()
