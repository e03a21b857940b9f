"""An object store on this machine: moto's server, which speaks the S3 API over HTTP."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from botocore.session import get_session

from infra.kafka.client import free_port
from infra.process.subprocesses import die_with_parent

KEY, SECRET = "reader-and-writer", "not-told-to-anyone"


@dataclass(frozen=True)
class Store:
    """A store with an empty bucket `plant`, and the environment that names it."""

    port: int

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to reach it."""
        return {
            "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{self.port}",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
        }

    def names(self, prefix: str) -> list[str]:
        """The keys of the bucket that begin so."""
        pages = _client(self.port).get_paginator("list_objects_v2")
        found = pages.paginate(Bucket="plant", Prefix=prefix)
        return sorted(one["Key"] for page in found for one in page.get("Contents", ()))


@contextmanager
def serve(folder: Path) -> Iterator[Store]:
    """The store's process, and its bucket; what it says is kept in `folder`."""
    port, log = free_port(), folder / "log"
    with log.open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
            stdout=said,
            stderr=said,
            preexec_fn=die_with_parent,
        )
    end = time.monotonic() + 60
    while True:
        try:
            _client(port).create_bucket(Bucket="plant")
            break
        except Exception:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.2)
    yield Store(port)
    process.terminate()
    process.wait(20)


def _client(port: int):  # type: ignore[no-untyped-def]  # botocore has no types
    return get_session().create_client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{port}",
        region_name="us-east-1",
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
    )
