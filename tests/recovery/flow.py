"""A flow of logs that never stops: leases, logins, lookups, attacks and garbage, by a seed."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import Message, Producer

from infra.config.settings import Settings
from infra.kafka.client import producer, topic_of
from tests.recovery.judge import place_of

SOURCES = ("isc_dhcpd", "sshd", "zeek:dns", "zeek:http", "aws_cloudtrail", "no_such_source")
DEVICES = 40
Headers = Sequence[tuple[str, bytes | None]]


class Flow:
    """Sends lines at a steady rate and keeps what the broker acknowledged, and where it lies."""

    def __init__(self, settings: Settings, seed: int, per_second: int) -> None:
        self.accepted: dict[tuple[str, int, int], bytes] = {}
        self._settings = settings
        self._random = random.Random(seed)
        self._pause = 1.0 / per_second
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> Flow:
        """Begin."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """End, with everything acknowledged."""
        self._stop.set()
        self._thread.join(60)

    def send(
        self, *lines: tuple[str, bytes | None], partition: int = -1, headers: Headers = ()
    ) -> None:
        """Send `(source, line)` beside the flow, each acknowledged; partition -1: any."""
        client = producer(self._settings.kafka)
        for source, line in lines:
            self._produce(client, source, line, partition=partition, headers=list(headers))
        assert client.flush(60) == 0

    def _run(self) -> None:
        client = producer(self._settings.kafka)
        for source, line in self._lines():
            if self._stop.wait(self._pause):
                break
            self._produce(client, source, line)
            client.poll(0)
        client.flush(60)

    def _produce(self, client: Producer, source: str, line: bytes | None, **more: Any) -> None:
        topic = topic_of(source, self._settings.kafka)
        client.produce(topic, line, on_delivery=self._delivered, **more)

    def _delivered(self, error: object, message: Message) -> None:
        assert error is None, error
        self.accepted[place_of(message)] = message.value() or b""

    def _lines(self) -> Iterator[tuple[str, bytes]]:
        for device in range(DEVICES):
            yield "isc_dhcpd", _ack(device)
        number = 0
        while True:
            number += 1
            yield from self._one(number)

    def _one(self, number: int) -> Iterator[tuple[str, bytes]]:
        device = self._random.randrange(DEVICES)
        address = _address(device)
        choice = number % 20
        if choice == 0:
            yield "isc_dhcpd", _ack(device)
        elif choice == 1:
            yield "zeek:http", _http(f"203.0.113.{number // 20 % 250}", "/../../etc/passwd", number)
        elif choice == 2:
            yield "zeek:http", _http(address, f"/../../etc/shadow?{number}", number)
        elif choice == 3:
            yield self._garbage(number)
        elif choice == 4 and number % 200 == 4:
            for _ in range(8):
                yield "sshd", _failed(address)
        elif choice == 5:
            yield "aws_cloudtrail", _cloudtrail(number)
        else:
            yield "zeek:dns", _dns(address, number)

    def _garbage(self, number: int) -> tuple[str, bytes]:
        kinds = (
            ("zeek:dns", b'{"ts": 1.5, "id.orig_h": "10.0.0.1"} {"second": 1}'),
            ("zeek:http", b'{"ts": "\xff\xfe"}'),
            ("sshd", b"\x00\x00\x00"),
            ("aws_cloudtrail", b"null"),
            ("no_such_source", b"nobody reads this"),
        )
        source, raw = kinds[self._random.randrange(len(kinds))]
        return source, raw + b" " * (number % 7)


def _address(device: int) -> str:
    return f"10.9.0.{device + 10}"


def _now() -> datetime:
    return datetime.now(UTC)


def _syslog(text: str) -> bytes:
    stamp = _now().isoformat(timespec="microseconds")
    return f"<30>1 {stamp} gate {text}".encode()


def _ack(device: int) -> bytes:
    mac = f"02:00:00:00:09:{device:02x}"
    return _syslog(f"dhcpd 7 - - DHCPACK on {_address(device)} to {mac} (host-{device}) via br0")


def _failed(address: str) -> bytes:
    return _syslog(f"sshd 9 - - Failed password for root from {address} port 4022 ssh2")


def _dns(address: str, number: int) -> bytes:
    return _zeek(address, number, query=f"www{number % 50}.example.com", qtype_name="A", rcode=0)


def _http(address: str, uri: str, number: int) -> bytes:
    return _zeek(address, number, method="GET", host="web", uri=uri, status_code=404)


def _zeek(address: str, number: int, **fields: object) -> bytes:
    record = {
        "ts": _now().timestamp(),
        "uid": f"C{number}",
        "id.orig_h": address,
        "id.orig_p": 40000 + number % 1000,
        "id.resp_h": "10.9.1.1",
        "id.resp_p": 80,
        **fields,
    }
    return json.dumps(record).encode()


def _cloudtrail(number: int) -> bytes:
    record = {
        "eventVersion": "1.08",
        "eventTime": _now().strftime("%Y-%m-%dT%H:%M:%SZ"),
        "eventSource": "s3.amazonaws.com",
        "eventName": "ListBuckets",
        "awsRegion": "eu-central-1",
        "sourceIPAddress": "198.51.100.7",
        "eventID": f"e-{number}",
        "eventType": "AwsApiCall",
        "recipientAccountId": "111122223333",
    }
    return json.dumps(record).encode()
