"""`make audit`: the bill of materials is whole and valid, and what is vulnerable is found."""

from __future__ import annotations

import gzip
import json
import re
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from packaging.utils import canonicalize_name
from referencing import Registry, Resource

from infra.errors import Usage
from infra.process import java_jars
from infra.supply_chain import audit
from infra.supply_chain.osv import affects, known_vulnerabilities, records
from infra.supply_chain.sbom import LOCK, Component, components, document

SCHEMAS = Path(__file__).with_name("cyclonedx")


@pytest.fixture(scope="module")
def found() -> list[Component]:
    return components()


def schema(name: str) -> Any:
    return json.loads(gzip.decompress((SCHEMAS / f"{name}.SNAPSHOT.schema.json.gz").read_bytes()))


@pytest.mark.full
def test_the_bill_is_valid_cyclonedx(found: list[Component]) -> None:
    bill = document(found, "1.0")
    base = "http://cyclonedx.org/schema/"
    others = [
        (f"{base}{name}.SNAPSHOT.schema.json", Resource.from_contents(schema(name)))
        for name in ("spdx", "jsf-0.82")
    ]
    valid = jsonschema.Draft7Validator(
        schema("bom-1.6"), registry=Registry().with_resources(others)
    )
    assert [error.message for error in valid.iter_errors(bill)] == []
    assert list(valid.iter_errors(bill | {"components": [{"type": "thing"}]})) != []


@pytest.mark.full
def test_every_package_and_archive_is_in_it_with_its_bytes(found: list[Component]) -> None:
    by_purl = {one.purl: one for one in found}
    for jar in java_jars.locked():
        assert by_purl[f"pkg:maven/{jar.group}/{jar.name}@{jar.version}"].sha256 == jar.sha256
    locked = set(re.findall(r"^([A-Za-z0-9][\w.-]*)==", LOCK.read_text(), re.M))
    installed = {canonicalize_name(one.metadata["Name"]) for one in distributions()}
    wanted = {canonicalize_name(name) for name in locked} & installed
    assert wanted - {one.name for one in found if one.kind == "pypi"} == set()
    assert [one.purl for one in found if one.kind == "maven" and not one.group] == []
    assert [one.purl for one in found if not (one.sha256 or one.accepted)] == []
    assert sum(one.name.startswith("spark-") for one in found) > 10  # those inside pyspark


@pytest.mark.full
def test_every_edge_of_the_graph_leads_to_a_component(found: list[Component]) -> None:
    bill = document(found, "1.0")
    refs = {one["bom-ref"] for one in bill["components"]} | {"headgate"}
    edges = {one["ref"]: set(one["dependsOn"]) for one in bill["dependencies"]}
    assert set(edges) == refs
    assert set().union(*edges.values()) - refs == set()
    assert any(ref.startswith("pkg:pypi/duckdb@") for ref in edges["headgate"])


PYPI = Component("pypi", "", "demo-lib", "1.4.0")
MAVEN = Component("maven", "org.demo", "lib", "2.10.1")


def record(ecosystem: str, name: str, *events: dict[str, str], **more: Any) -> dict[str, Any]:
    part = {
        "package": {"ecosystem": ecosystem, "name": name},
        "ranges": [{"type": "ECOSYSTEM", "events": list(events)}],
    }
    return {"id": "GHSA-demo", "summary": "It leaks", "affected": [part], **more}


@pytest.mark.parametrize(
    ("one", "events", "expected"),
    [
        (PYPI, [{"introduced": "0"}], True),
        (PYPI, [{"introduced": "0"}, {"fixed": "1.4.0"}], False),
        (PYPI, [{"introduced": "0"}, {"fixed": "1.4.0.post1"}], True),
        (PYPI, [{"introduced": "1.4.0rc1"}, {"last_affected": "1.4"}], True),
        (PYPI, [{"introduced": "0"}, {"last_affected": "1.3.9"}], False),
        (PYPI, [{"introduced": "0"}, {"fixed": "1.2"}, {"introduced": "1.3"}], True),
        (PYPI, [{"introduced": "0"}, {"fixed": "1.2"}, {"introduced": "1.10"}], False),
        (MAVEN, [{"introduced": "0"}, {"fixed": "2.9.5"}], False),
        (MAVEN, [{"introduced": "2.10.0"}, {"fixed": "2.10.2"}], True),
        (MAVEN, [{"introduced": "2.10.1-rc1"}, {"fixed": "2.10.1"}], False),
        (MAVEN, [{"introduced": "2.10.1.0"}], True),
        (MAVEN, [{"introduced": "2.10.1-alpha-1"}, {"last_affected": "2.10.1.Final"}], True),
        (MAVEN, [{"introduced": "2.10.1-sp1"}], False),
    ],
)
def test_a_range_covers_the_versions_it_names(
    one: Component, events: list[dict[str, str]], expected: bool
) -> None:
    ecosystem, name = ("PyPI", "Demo_Lib") if one is PYPI else ("Maven", "org.demo:lib")
    told = record(ecosystem, name, *events)
    assert affects(told["affected"][0], one) is expected
    assert bool(known_vulnerabilities([PYPI, MAVEN], [told])) is expected


def test_what_was_withdrawn_or_is_of_another_package_is_passed_over() -> None:
    always = {"introduced": "0"}
    assert (
        known_vulnerabilities([PYPI], [record("PyPI", "demo-lib", always, withdrawn="2026-01-01")])
        == []
    )
    assert (
        known_vulnerabilities(
            [PYPI], [record("PyPI", "demo", always), record("npm", "demo-lib", always)]
        )
        == []
    )
    assert (
        known_vulnerabilities(
            [PYPI], [{"id": "X", "affected": [{"package": {"name": "demo-lib"}}]}]
        )
        == []
    )


def test_dumps_folders_and_files_are_read_and_nonsense_is_named(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.json").write_text('{"id": "A"}')
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as dump:
        dump.writestr("b.json", '{"id": "B"}')
    paths = [tmp_path / "folder", tmp_path / "all.zip"]
    assert [one["id"] for one in records(paths)] == ["A", "B"]
    (tmp_path / "c.json").write_text("[]")
    with pytest.raises(Usage, match=r"c\.json: holds what is no record"):
        list(records([tmp_path / "c.json"]))
    with pytest.raises(Usage, match="gone: no such file"):
        list(records([tmp_path / "gone"]))


def test_an_open_vulnerability_fails_the_audit_and_an_accepted_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = record("PyPI", "duckdb", {"introduced": "0"}, {"fixed": "999"}, aliases=["CVE-1"])
    (tmp_path / "a.json").write_text(json.dumps(told))
    words = ["--osv", str(tmp_path / "a.json"), "--output", "json", "--sbom", str(tmp_path / "b")]
    assert audit.main(words) == 1
    (row,) = json.loads(capsys.readouterr().out)
    assert row["id"] == "GHSA-demo"
    assert row["component"].startswith("pkg:pypi/duckdb@")
    assert row["fixed"] == "999"
    assert json.loads((tmp_path / "b").read_text())["bomFormat"] == "CycloneDX"
    accepted = tmp_path / "accepted.toml"
    accepted.write_text('[[accepted]]\nid = "CVE-1"\nuntil = 9999-01-01\nreason = "not reached"\n')
    monkeypatch.setattr(audit, "ACCEPTED", accepted)
    assert audit.main(words) == 0
    assert "1 known vulnerabilities, 1 of them accepted" in capsys.readouterr().err


def test_accepting_ends_with_its_day_and_wants_a_reason() -> None:
    entry = '[[accepted]]\nid = "CVE-1"\nuntil = 2026-11-30\n'
    reasoned = f'{entry}reason = "not reached"\n'
    assert audit.accepted_today(reasoned, date(2026, 11, 30)) == {"CVE-1": "not reached"}
    assert audit.accepted_today(reasoned, date(2026, 12, 1)) == {}
    with pytest.raises(Usage, match="wants id, until"):
        audit.accepted_today(entry, date(2026, 11, 30))


@contextmanager
def server(vulnerable: str) -> Iterator[str]:
    """OSV's interface over one record: for purls of a package it names the record's id."""

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            purls = [query["package"]["purl"] for query in asked["queries"]]
            hit = {"vulns": [{"id": "GHSA-demo"}]}
            self.answer({"results": [hit if vulnerable in purl else {} for purl in purls]})

        def do_GET(self) -> None:
            name = vulnerable.rpartition("/")[2]
            self.answer(record("PyPI", name, {"introduced": "0"}) | {"id": self.path[10:]})

        def answer(self, body: Any) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    running = HTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{running.server_port}"
    finally:
        running.shutdown()
        running.server_close()


def test_a_server_is_asked_about_every_component(capsys: pytest.CaptureFixture[str]) -> None:
    with server("pkg:pypi/sqlglot") as url:
        assert audit.main(["--server", url, "--output", "ndjson"]) == 1
    row = json.loads(capsys.readouterr().out)
    assert (row["id"], row["component"][:17]) == ("GHSA-demo", "pkg:pypi/sqlglot@")


def test_where_nobody_can_be_asked_the_audit_fails_and_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert audit.main(["--server", "http://127.0.0.1:9"]) == 1
    assert "NOT CHECKED for vulnerabilities" in capsys.readouterr().err
