"""Which topic a syslog message goes to."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from ipaddress import ip_address, ip_network

from infra.config.listen_section import ListenRouteSettings
from infra.config.settings import KafkaSettings
from infra.config.tenants import feed_of
from infra.kafka.client import topic_of
from ingest.parsing.source import Unreadable
from ingest.parsing.syslog import names_of
from ingest.parsing.syslog_header import find

_HEADER_BYTES = 1024


class Router:
    """The routes of the settings, in their order; the first that fits."""

    def __init__(self, routes: Sequence[ListenRouteSettings], kafka: KafkaSettings) -> None:
        self._routes = tuple(routes)
        self._kafka = kafka
        # The header is only read where a route asks for what it says.
        self._reads = any(route.program or route.host for route in routes)

    def topic(self, message: bytes, peer: str, source: str, tenant: str | None = None) -> str:
        """The topic of a message from address `peer`; without a route that of `source`.

        `tenant`: of the port. Nothing that the message says has a say in it.
        """
        if self._routes:
            program, host = _header(message) if self._reads else (None, None)
            for route in self._routes:
                if (
                    (route.peer is None or _within(peer, route.peer))
                    and (route.host is None or route.host == host)
                    and (route.program is None or route.program in names_of(program))
                ):
                    source = route.source
                    break
        return topic_of(feed_of(source, tenant), self._kafka)


def _header(message: bytes) -> tuple[str | None, str | None]:
    """Program and host of a message, where it says them."""
    line = message[:_HEADER_BYTES].lstrip(b"\r\n").partition(b"\n")[0]
    try:
        part = find(line.decode("utf-8", "replace").rstrip("\r")).match.groupdict()
    except Unreadable:
        return None, None
    return part.get("program"), part.get("host")


@lru_cache(maxsize=4096)
def _within(address: str, network: str) -> bool:
    try:
        return ip_address(address) in ip_network(network)
    except ValueError:
        return False
