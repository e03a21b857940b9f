"""Whether an evidence bundle is whole and holds together; needs the file alone, and no lake."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from alerts.cases.evidence import FORM, MANIFEST, SUMS
from infra.errors import Usage

Row = dict[str, Any]
MOST_SHOWN = 20


@dataclass
class Checked:
    """What a bundle is, and what is wrong with it."""

    digest: str
    manifest: Row = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def check_bundle(file: Path, digest: str | None = None) -> Checked:
    """Check every hash, and that alerts, findings, events and records belong together.

    `digest`: SHA-256 of the file as the audit has it. Raises `Usage` where there is no bundle.
    """
    try:
        # Of all bytes: a zip may have others before and behind it, and reads the same.
        with file.open("rb") as content:
            checked = Checked(hashlib.file_digest(content, "sha256").hexdigest())
        bundle = zipfile.ZipFile(file)
    except OSError as error:
        raise Usage(f"{file}: cannot be read ({error.strerror})") from None
    except zipfile.BadZipFile as error:
        raise Usage(f"{file}: no evidence bundle ({error})") from None
    with bundle:
        if digest is not None and digest.lower() != checked.digest:
            checked.problems.append(f"the file's SHA-256 is {checked.digest}, not {digest}")
        content_by_name = _files(bundle, checked)
    if MANIFEST in content_by_name:
        try:
            _belong_together(content_by_name, checked)
        # Whoever changes a file can write its new hash down as well.
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            checked.problems.append(f"a file is not of the form {FORM} ({error!r})")
    return checked


def _files(bundle: zipfile.ZipFile, checked: Checked) -> dict[str, bytes]:
    """The files whose hash is the one that was written down."""
    names = bundle.namelist()
    # A zip may hold a name twice: this reads the last of them, and another program shows the first.
    if len(names) != len(set(names)):
        checked.problems.append("a file is there twice")
    content: dict[str, bytes] = {}
    for name in dict.fromkeys(names):
        try:
            content[name] = bundle.read(name)
        # RuntimeError: a member that is encrypted, or packed in a way that Python does not know.
        except (zipfile.BadZipFile, OSError, EOFError, ValueError, RuntimeError) as error:
            checked.problems.append(f"{name}: cannot be read ({error})")
    sums = dict(_sums(content.pop(SUMS, b"")))
    if not sums:
        checked.problems.append(f"{SUMS} is missing: nothing can be checked")
    for name in sorted(sums.keys() - content.keys()):
        checked.problems.append(f"{name}: is missing")
    for name in sorted(content.keys() - sums.keys()):
        checked.problems.append(f"{name}: was added later, no hash is written down")
    right = {}
    for name, text in content.items():
        if name in sums and hashlib.sha256(text).hexdigest() == sums[name]:
            right[name] = text
        elif name in sums:
            checked.problems.append(f"{name}: was changed, its SHA-256 is another")
    return right


def _sums(text: bytes) -> Iterator[tuple[str, str]]:
    for line in text.decode("utf-8", "replace").splitlines():
        # As `sha256sum` writes them, so that `sha256sum -c` checks a bundle that was unpacked.
        digest, _, name = line.partition("  ")
        if len(digest) == 64 and name:
            yield name, digest


def _belong_together(content: dict[str, bytes], checked: Checked) -> None:
    problems = checked.problems
    try:
        checked.manifest = manifest = msgspec.json.decode(content[MANIFEST])
        rows = {
            name: [msgspec.json.decode(line) for line in text.splitlines()]
            for name, text in content.items()
            if name.endswith(".ndjson")
        }
    except msgspec.MsgspecError as error:
        problems.append(f"a file is no JSON: {error}")
        return
    if manifest.get("form") != FORM:
        problems.append(f"form '{manifest.get('form')}' is not {FORM}; a newer release made it")
        return
    for name, count in manifest["rows"].items():
        if len(rows.get(name, ())) != count:
            problems.append(f"{name}: {len(rows.get(name, ()))} rows, not {count}")
    missing = {kind: set(ids) for kind, ids in manifest["missing"].items()}
    for row in rows.get("records.ndjson", ()):
        raw = base64.b64decode(row["raw"] or "")
        if hashlib.sha256(raw).hexdigest() != row["raw_sha256"]:
            problems.append(f"record {row['record_id']}: its bytes are not those of its SHA-256")
    records = {row["record_id"] for row in rows.get("records.ndjson", ())}
    events = {row["event_uid"] for row in rows.get("events.ndjson", ())}
    findings = {row["event_uid"] for row in rows.get("findings.ndjson", ())}
    alerts = {row["alert_id"] for row in rows.get("alerts.ndjson", ())}
    named = {
        "alert": set(manifest["alerts"]) - alerts - missing["alerts"],
        "event": {
            each["event_uid"]
            for row in rows.get("alerts.ndjson", ())
            for each in row["body"].get("evidence") or ()
        } - events - findings - missing["events"],
        "record": {
            name for row in rows.get("events.ndjson", ()) for name in row["record_ids"] or ()
        } - records - missing["records"],
    }  # fmt: skip
    for kind, ids in named.items():
        for name in sorted(ids)[:MOST_SHOWN]:
            problems.append(f"{kind} {name}: is named, and neither there nor said to be missing")
        if len(ids) > MOST_SHOWN:
            problems.append(f"and {len(ids) - MOST_SHOWN} more of {kind}s that are not there")
