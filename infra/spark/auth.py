"""Who may talk to Spark: its ports are on loopback, but every user of a machine reaches those."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import secrets
from pathlib import Path

from infra.config.secrets import NAMES, of_file
from infra.config.settings import Settings
from infra.storage.atomic_files import write_private

_FILTER = "org.apache.spark.ui.JWSFilter"


def conf(settings: Settings) -> dict[str, str]:
    """Spark settings that close its RPC, its block transfer and its pages.

    On this machine Spark makes a secret of its own for each run; with workers elsewhere
    it is that of `spark.secret_file`, and what goes over the wire is encrypted.
    """
    lines = {"spark.redaction.regex": NAMES, "spark.ui.enabled": str(settings.spark.ui).lower()}
    if settings.spark.master == "local" or settings.spark.master.startswith("local["):
        lines["spark.authenticate"] = "true"
    elif settings.spark.secret_file is not None:
        lines |= {
            "spark.authenticate": "true",
            "spark.authenticate.secret": of_file(settings.spark.secret_file, "spark.secret_file"),
            "spark.network.crypto.enabled": "true",
            "spark.network.crypto.authEngineVersion": "2",
        }
    if settings.spark.ui:
        lines["spark.ui.filters"] = _FILTER
        lines[f"spark.{_FILTER}.param.secretKey"] = page_key(_token_file(settings))
    return lines


def umask_conf(umask: int) -> dict[str, str]:
    """Hadoop sets the permissions of what it makes itself, by a mask of its own."""
    return {"spark.hadoop.fs.permissions.umask-mode": f"{umask:03o}"}


def _token_file(settings: Settings) -> Path:
    """Where the token for Spark's pages lies while they are served."""
    return settings.home.absolute() / "spark-ui.token"


def listen_on(address: str) -> None:
    """Spark's pages know no setting for their address: it is taken from the environment."""
    os.environ.setdefault("SPARK_LOCAL_IP", address)


def page_key(file: Path) -> str:
    """A new key for Spark's filter of its pages; the token it signs (HS256, RFC 7515) is left in
    `file` for its owner."""
    key = secrets.token_bytes(32)
    signed = f"{_part({'alg': 'HS256', 'typ': 'JWT'})}.{_part({'sub': 'headgate'})}"
    mark = hmac.new(key, signed.encode("ascii"), hashlib.sha256).digest()
    write_private(file, f"{signed}.{_text(mark)}\n")
    return _text(key)


def _part(content: dict[str, str]) -> str:
    return _text(json.dumps(content, separators=(",", ":")).encode("ascii"))


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode("ascii").rstrip("=")
