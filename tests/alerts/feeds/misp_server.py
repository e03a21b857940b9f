"""MISP's REST and a MISP feed on loopback, as its OpenAPI document and feed format describe them.

Events are made and written by `pymisp`, the project's own library; what the server is asked is
kept, so that a test can compare it with what that library asks.
"""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pymisp import MISPEvent, MISPOrganisation

KEY = "a-key-of-the-tests-0123456789abcdefghijk"
STARTED = datetime(2026, 11, 20, 12, tzinfo=UTC)


class MispServer:
    """Events that were published; `now` is the server's clock."""

    def __init__(self) -> None:
        self.events: list[MISPEvent] = []
        self.asked: list[dict[str, Any]] = []
        self.files: list[str] = []
        self.status = 200
        self.now = STARTED
        self._httpd = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._httpd.server_port}"
        threading.Thread(target=self._httpd.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._httpd.shutdown()
        self._httpd.server_close()

    def publish(self, *attributes: tuple[str, str] | tuple[str, str, dict[str, Any]]) -> MISPEvent:
        """A new event of (type, value, more), published now."""
        event = MISPEvent()
        event.info, event.distribution, event.threat_level_id = "A campaign", 3, 1
        event.set_date("2026-11-20")
        event.Orgc = MISPOrganisation()
        event.Orgc.name, event.Orgc.uuid = "CERT", "55f6ea5e-2c60-40e5-964f-47a8950d210f"
        for kind, value, *more in attributes:
            attribute = event.add_attribute(kind, value, **{"timestamp": self.now} | dict(*more))
            assert not isinstance(attribute, list)
        self.events.append(event)
        return self.publish_again(event)

    def publish_again(self, event: MISPEvent) -> MISPEvent:
        """What was changed of an event goes out."""
        event.published, event.timestamp, event.publish_timestamp = True, self.now, self.now
        return event

    def search(self, asked: dict[str, Any]) -> list[dict[str, Any]]:
        """What `attributes/restSearch` answers."""
        deleted = asked.get("deleted", 0)
        allowed = [bool(each) for each in (deleted if isinstance(deleted, list) else [deleted])]
        since = int(asked.get("publish_timestamp") or 0)
        rows = [
            attribute
            | {"Event": {"uuid": event.uuid, "info": event.info}, "Tag": tags}
            # The library leaves it out of what was changed, as the server would set it.
            | {"timestamp": str(int(each.timestamp.timestamp()))}
            for event in self.events
            if int(event.publish_timestamp.timestamp()) >= since
            for each in event.attributes
            for attribute in [json.loads(each.to_json())]
            for tags in [[*attribute.get("Tag", []), *json.loads(event.to_json()).get("Tag", [])]]
            if attribute["type"] in asked["type"]
            and (not asked.get("to_ids") or attribute["to_ids"])
            and bool(attribute.get("deleted")) in allowed
            and (not asked.get("tags") or {tag["name"] for tag in tags} & {*asked["tags"]})
        ]
        begin = (asked["page"] - 1) * asked["limit"]
        return rows[begin : begin + asked["limit"]]

    def file(self, name: str) -> Any:
        """A file of the feed, as `pymisp` writes it; None where there is none."""
        feeds = {event.uuid: event.to_feed(with_meta=True)["Event"] for event in self.events}
        manifests = [event.pop("_manifest") for event in feeds.values()]
        if name == "manifest.json":
            return {uuid: about for each in manifests for uuid, about in each.items()}
        event = feeds.get(name.removesuffix(".json"))
        return event and {"Event": event}

    def _handler(server) -> type[BaseHTTPRequestHandler]:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers["Authorization"] != KEY:
                    self._send(403, {"message": "Authentication failed."})
                elif server.status != 200:
                    self._send(server.status, {"message": "Not now."})
                else:
                    assert self.path == "/attributes/restSearch"
                    server.asked.append(json.loads(body))
                    found = server.search(server.asked[-1])
                    self._send(200, {"response": {"Attribute": found}})

            def do_GET(self) -> None:
                name = self.path.rpartition("/")[2]
                server.files.append(name)
                if name in ("getVersion", "getPyMISPVersion.json"):
                    self._send(200, {"version": "2.5.34", "perm_sync": True})
                elif name == "me":
                    person = {"id": "1", "email": "a@b.example", "org_id": "1", "role_id": "1"}
                    self._send(200, {"User": person, "Role": {"id": "1"}, "UserSetting": []})
                else:
                    made = server.file(name)
                    self._send(200 if made else 404, made or {"message": "Not found."})

            def _send(self, status: int, body: Any) -> None:
                data = json.dumps(body, default=str).encode()
                self.send_response_only(status)
                self.send_header("Date", server.now.strftime("%a, %d %b %Y %H:%M:%S GMT"))
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                """Not into the tests' output."""

        return Handler
