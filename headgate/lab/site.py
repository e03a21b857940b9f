"""The site: ten clients, three servers, their users and networks."""

from __future__ import annotations

from dataclasses import dataclass

DOMAIN = "corp.example"
WINDOWS, LINUX, PHONE, PRINTER = "windows", "linux", "phone", "printer"


@dataclass(frozen=True)
class Client:
    """A device with a lease. `mac` in lower case with colons; `user` works on it."""

    name: str
    mac: str
    user: str
    system: str


@dataclass(frozen=True)
class Server:
    """A machine with an address of its own."""

    name: str
    ip: str
    system: str

    @property
    def fqdn(self) -> str:
        """Its name with the domain."""
        return f"{self.name}.{DOMAIN}"


def _mac(number: int) -> str:
    return f"02:42:ac:29:00:{number:02x}"


CLIENTS = (
    Client("ws-01", _mac(1), "ann", WINDOWS),
    Client("ws-02", _mac(2), "bob", WINDOWS),
    Client("ws-03", _mac(3), "carla", WINDOWS),
    Client("ws-04", _mac(4), "desk", WINDOWS),
    Client("lt-05", _mac(5), "ella", WINDOWS),
    Client("lt-06", _mac(6), "finn", WINDOWS),
    Client("lx-07", _mac(7), "gita", LINUX),
    Client("adm-08", _mac(8), "hal", WINDOWS),
    Client("phone-09", _mac(9), "ann", PHONE),
    Client("printer-10", _mac(10), "", PRINTER),
)
BY_NAME = {client.name: client for client in CLIENTS}
ADMIN = BY_NAME["adm-08"]
DC = Server("dc1", "10.40.0.10", WINDOWS)
WEB = Server("web1", "10.40.0.20", LINUX)
BACKUP = Server("bak1", "10.40.0.30", LINUX)
SERVERS = (DC, WEB, BACKUP)
HOSTS = (*(client.name for client in CLIENTS), *(server.name for server in SERVERS))
"""What host-days are counted of."""

OFFICE, WIFI = "office", "wifi"
GATEWAY, SENSOR = "gw1", "sensor1"
ZONES = {"kea_dhcp4": "Europe/Berlin"}
"""Zones of the sources whose times name none and are not UTC."""
