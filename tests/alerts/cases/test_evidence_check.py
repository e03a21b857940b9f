"""Bundles that somebody made up are told of, not a fault of ours."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from alerts.cases.evidence import FORM, MANIFEST, SUMS
from alerts.cases.evidence_check import check_bundle

EMPTY = {"form": FORM, "rows": {}, "missing": {"alerts": [], "events": [], "records": []},
         "alerts": []}  # fmt: skip


def bundle(folder: Path, content: dict[str, Any]) -> Path:
    """A zip with hashes that are right."""
    texts = {
        name: ("\n".join(map(json.dumps, rows)) if name.endswith(".ndjson") else json.dumps(rows))
        for name, rows in content.items()
    }
    sums = "".join(f"{hashlib.sha256(t.encode()).hexdigest()}  {n}\n" for n, t in texts.items())
    file = folder / "bundle.zip"
    with zipfile.ZipFile(file, "w") as out:
        for name, text in {**texts, SUMS: sums}.items():
            out.writestr(name, text)
    return file


def test_an_empty_bundle_is_whole(tmp_path: Path) -> None:
    assert check_bundle(bundle(tmp_path, {MANIFEST: EMPTY})).problems == []


@pytest.mark.parametrize(
    "content",
    [
        {MANIFEST: []},
        {MANIFEST: {"form": FORM}},
        {MANIFEST: EMPTY | {"rows": [1]}},
        {MANIFEST: EMPTY | {"missing": None}},
        {MANIFEST: EMPTY, "records.ndjson": [{"raw": "no base64!"}]},
        {MANIFEST: EMPTY, "alerts.ndjson": [[]]},
    ],
)
def test_files_of_another_shape_are_a_problem_with_a_sentence(
    tmp_path: Path, content: dict[str, Any]
) -> None:
    (problem,) = check_bundle(bundle(tmp_path, content)).problems
    assert problem.startswith(f"a file is not of the form {FORM}")


def test_a_member_that_wants_a_password_is_named(tmp_path: Path) -> None:
    file = bundle(tmp_path, {MANIFEST: EMPTY})
    packed = bytearray(file.read_bytes())
    # The flag "encrypted" of the first member: in its own header and in the directory at the end.
    packed[6] |= 1
    packed[packed.index(b"PK\x01\x02") + 8] |= 1
    file.write_bytes(packed)
    assert any(
        line.startswith(f"{MANIFEST}: cannot be read (") for line in check_bundle(file).problems
    )
