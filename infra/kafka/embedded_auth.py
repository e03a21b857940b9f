"""A broker of our own that asks who comes: TLS, SCRAM, and what each user may do.

Users speak SASL_SSL to it. The broker speaks to itself and to its controller over TLS
with its own certificate on both sides, so no password lies in its `server.properties`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from infra.config.settings import KafkaSettings
from infra.storage.atomic_files import write_private


@dataclass(frozen=True)
class Guard:
    """Who may come in."""

    certificate: Path
    """PEM file: the broker's key (PKCS #8) and its certificate, which names 127.0.0.1."""
    authority: Path
    """PEM file with the authority that signed it; only that one is trusted."""
    subject: str
    """Subject of the certificate, such as `CN=broker`: that is how the broker knows itself."""
    users: Mapping[str, SecretStr]
    """SCRAM users by name; none may do anything before an ACL says so."""
    admin: str
    """The one of `users` who may do everything."""

    def settings(self, address: str, user: str | None = None) -> KafkaSettings:
        """How a user (the admin, unless told) reaches the broker at `address`."""
        who = user or self.admin
        return KafkaSettings(
            bootstrap=address,
            protocol="SASL_SSL",
            ca_file=self.authority,
            user=who,
            password=self.users[who],
        )

    def properties(self, port: int, internal: int, controller: int) -> dict[str, str]:
        """What `server.properties` says of it."""
        only_us = {
            f"listener.name.{name}.ssl.client.auth": "required"
            for name in ("internal", "controller")
        }
        return only_us | {
            "listeners": f"SASL_SSL://127.0.0.1:{port},INTERNAL://127.0.0.1:{internal},"
            f"CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"SASL_SSL://127.0.0.1:{port},INTERNAL://127.0.0.1:{internal}",
            "listener.security.protocol.map": "SASL_SSL:SASL_SSL,INTERNAL:SSL,CONTROLLER:SSL",
            "inter.broker.listener.name": "INTERNAL",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            # It calls nobody by SCRAM, so the line names no user; it must be there all the same.
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": "org.apache.kafka.common"
            ".security.scram.ScramLoginModule required;",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.certificate.absolute()),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.absolute()),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "false",
            "super.users": f"User:{self.subject};User:{self.admin}",
        }

    def arguments(self, file: Path) -> None:
        """Write the users as arguments for Kafka's StorageTool, which reads them from a file
        (`@FILE`): what stands on its command line, everybody can read.
        """
        message = (
            f"--add-scram\nSCRAM-SHA-512=[name={name},password={password.get_secret_value()}]\n"
            for name, password in self.users.items()
        )
        write_private(file, "".join(message))
