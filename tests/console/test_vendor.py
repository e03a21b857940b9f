"""What is not ours is what its package has, with its licence, and nothing else is served."""

from __future__ import annotations

import hashlib
import json

import pytest

from api.console.assets import STATIC

VENDOR = STATIC / "vendor"
MANIFEST = json.loads((VENDOR / "manifest.json").read_text("utf-8"))


@pytest.mark.parametrize("package", MANIFEST, ids=lambda package: str(package["package"]))
def test_vendored_files_are_those_of_the_manifest(package):
    folder = VENDOR / package["folder"]
    hashes = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in folder.iterdir()}
    assert hashes == package["sha256"]
    assert package["version"]
    assert "LICENSE" in hashes, f"{folder} has no licence beside it"


def test_nothing_is_vendored_that_the_manifest_does_not_name():
    folders = {folder.name for folder in VENDOR.iterdir() if folder.is_dir()}
    assert folders == {package["folder"] for package in MANIFEST}
