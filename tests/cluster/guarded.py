"""A broker that asks who comes, as one that a cluster reads from must be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from infra.config.settings import KafkaSettings, load
from infra.kafka.acls import apply, grants
from infra.kafka.client import Broker, ensure_topics, free_port
from infra.kafka.embedded_auth import Guard
from tests.infra.authority import Authority

CANARY = "canary-in-no-log"
PASSWORD = f'{CANARY} "quoted\\ $HOME `id` {{{{x}}}}'
"""With all that a shell, JAAS or a template on its way would take for something else."""


@dataclass(frozen=True)
class Guarded:
    """How those who may do everything, and drivers, reach the broker."""

    admin: KafkaSettings
    driver: KafkaSettings

    @property
    def environment(self) -> dict[str, str]:
        """A driver's settings as variables, all but the password."""
        return {
            "HEADGATE_KAFKA__BOOTSTRAP": self.driver.bootstrap,
            "HEADGATE_KAFKA__PROTOCOL": self.driver.protocol,
            "HEADGATE_KAFKA__CA_FILE": str(self.driver.ca_file),
            "HEADGATE_KAFKA__USER": self.driver.user or "",
        }


@contextmanager
def guarded(folder: Path, *sources: str) -> Iterator[Guarded]:
    """A broker with the topics of `sources` and our own, and the rights drivers need."""
    authority = Authority.made(folder)
    guard = Guard(
        certificate=authority.certificate(folder, "broker"),
        authority=authority.file,
        subject="CN=broker",
        users={"admin": SecretStr("a"), "driver": SecretStr(PASSWORD)},
        admin="admin",
    )
    broker = Broker(folder / "kafka", free_port(), guard=guard).start()
    try:
        known = Guarded(guard.settings(broker.address), guard.settings(broker.address, "driver"))
        settings = load(home=folder / "home").model_copy(update={"kafka": known.admin})
        ensure_topics(settings, (*sources, "headgate"))
        apply(settings, {"driver": grants("driver", settings)})
        yield known
    finally:
        broker.stop()


def telling(folder: Path) -> list[Path]:
    """Files below a folder that hold the password, or a part of it; files that a running broker
    renames or removes meanwhile hold nothing."""
    files = []
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            if path.is_file() and not path.is_symlink() and CANARY.encode() in path.read_bytes():
                files.append(path)
    return files
