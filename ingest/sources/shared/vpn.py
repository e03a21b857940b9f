"""A client of a VPN server, as the server's log names it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ingest.sources.shared.daemon_source import endpoint

PRODUCT: Mapping[str, str] = {"name": "OpenVPN", "vendor_name": "OpenVPN Inc."}


class Peer(NamedTuple):
    """A client: its name, once it has authenticated, its address and its port."""

    name: str | None
    ip: str | None
    port: str | None

    def source(self, rest: dict[str, Any]) -> dict[str, Any] | None:
        """The client as the source of an event."""
        return endpoint(self.ip, self.port, rest=rest) if self.ip else None
