"""A real TAXII 2.1 server (medallion, in memory) as a process of its own on loopback."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import requests

from infra.kafka.client import free_port
from tests.wait import until

USER, PASSWORD = "reader", "a password of the tests"
_COLLECTIONS = [f"365fed99-08fa-fdcd-a1b3-{number:012x}" for number in range(40)]
MEDIA_TYPE = "application/taxii+json;version=2.1"


class TaxiiServer:
    """One API root with empty collections that may be read and written.

    `collection` is the one that is used now; `renew` takes another.
    """

    def __init__(self, folder: Path, page: int = 20) -> None:
        self.port = free_port()
        self.root = f"http://127.0.0.1:{self.port}/trust/"
        collections = [
            {
                "id": name,
                "title": "Indicators",
                "can_read": True,
                "can_write": True,
                "media_types": ["application/stix+json;version=2.1"],
                "objects": [],
                "manifest": [],
            }
            for name in _COLLECTIONS
        ]
        self._unused = iter(_COLLECTIONS)
        self.renew()
        information = {
            "title": "Trusted",
            "versions": [MEDIA_TYPE],
            "max_content_length": 1_000_000,
        }
        data = {
            "/discovery": {"title": "Server", "api_roots": [self.root], "default": self.root},
            "trust": {"information": information, "status": [], "collections": collections},
        }
        (folder / "data.json").write_text(json.dumps(data))
        config = {
            "backend": {
                "module": "medallion.backends.memory_backend",
                "module_class": "MemoryBackend",
                "filename": str(folder / "data.json"),
            },
            "users": {USER: PASSWORD},
            "taxii": {"max_page_size": page},
        }
        (folder / "config.json").write_text(json.dumps(config))
        command = [sys.executable, "-m", "medallion.scripts.run", "--port", str(self.port)]
        self._log = (folder / "log").open("w")
        self._process = subprocess.Popen(
            [*command, str(folder / "config.json")], stdout=self._log, stderr=self._log
        )
        until(self._answers, seconds=30)

    def renew(self) -> None:
        """Use a collection that is still empty."""
        self.collection = next(self._unused)

    def _answers(self) -> bool:
        try:
            return self._call("GET", "").ok
        except requests.ConnectionError:
            assert self._process.poll() is None
            return False

    def _call(self, method: str, path: str, **more: Any) -> requests.Response:
        headers = {"Accept": MEDIA_TYPE, "Content-Type": MEDIA_TYPE}
        return requests.request(
            method, self.root + path, auth=(USER, PASSWORD), headers=headers, timeout=10, **more
        )

    def add(self, *objects: Any) -> None:
        """Add STIX objects, all at one time."""
        body = json.dumps({"objects": list(objects)})
        answer = self._call("POST", f"collections/{self.collection}/objects/", data=body)
        assert answer.status_code == 202, answer.text
        assert answer.json()["failure_count"] == 0, answer.text

    def objects(self, version: str = "last") -> Sequence[dict[str, Any]]:
        """All objects that it has."""
        result: list[dict[str, Any]] = []
        more: dict[str, Any] = {}
        while True:
            params = {"match[version]": version, "limit": 100} | more
            answer = self._call(
                "GET", f"collections/{self.collection}/objects/", params=params
            ).json()
            result += answer.get("objects", [])
            if not answer.get("more"):
                return result
            more = {"next": answer["next"]}

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(10)
        self._log.close()
