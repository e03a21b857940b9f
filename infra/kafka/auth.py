"""Who we are to the broker: TLS and SASL for librdkafka and for Spark's Java client.

The Java client wants the password inside its JAAS line. Options of a stream show up in
plans and in the text of its errors, so they only name an environment variable, which
Kafka resolves itself (`config.providers`, KIP-297 and KIP-887), in the driver and in
each executor.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException

from infra.config.secrets import either
from infra.config.settings import KafkaSettings, Settings
from infra.errors import Fatal, HeadgateError, Retryable

QUOTED_PASSWORD = "HEADGATE_KAFKA_QUOTED_PASSWORD"
"""Environment variable of each JVM that reads topics: the password as it stands within quotes. On
Kubernetes the image's entrypoint makes it of what an executor's pod has."""

_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_PROVIDER = "org.apache.kafka.common.config.provider.EnvVarConfigProvider"


def librdkafka(kafka: KafkaSettings) -> dict[str, str]:
    """Options of librdkafka that say who we are and whom we trust; the password among them."""
    options: dict[str, str] = {}
    if kafka.protocol != "PLAINTEXT":
        options["security.protocol"] = kafka.protocol
    if kafka.ca_file is not None:
        options["ssl.ca.location"] = str(kafka.ca_file.absolute())
    if kafka.certificate_file is not None:
        pem = str(kafka.certificate_file.absolute())
        options |= {"ssl.certificate.location": pem, "ssl.key.location": pem}
    if kafka.user is not None:
        options |= {"sasl.mechanism": kafka.mechanism, "sasl.username": kafka.user}
    password = either(kafka.password, kafka.password_file, "kafka.password")
    return options if password is None else options | {"sasl.password": password}


def java_security(kafka: KafkaSettings) -> dict[str, str]:
    """The same for Java clients, without the password: that comes by `environment`."""
    options: dict[str, str] = {}
    if kafka.protocol != "PLAINTEXT":
        options["security.protocol"] = kafka.protocol
    for role, file in (("truststore", kafka.ca_file), ("keystore", kafka.certificate_file)):
        if file is not None:
            options |= {f"ssl.{role}.type": "PEM", f"ssl.{role}.location": str(file.absolute())}
    if kafka.user is None:
        return options
    who = f'username="{_escaped(kafka.user)}" password="${{env:{QUOTED_PASSWORD}}}"'
    return options | {
        "sasl.mechanism": kafka.mechanism,
        "sasl.jaas.config": f"{_MODULES[kafka.mechanism]} required {who};",
        "config.providers": "env",
        "config.providers.env.class": _PROVIDER,
        # Without it an option could name, and so read, any variable of the environment.
        "config.providers.env.param.allowlist.pattern": QUOTED_PASSWORD,
    }


def environment(kafka: KafkaSettings) -> dict[str, str]:
    """What a JVM must find in its environment for the options of `java`."""
    if kafka.user is None:
        return {}
    password = either(kafka.password, kafka.password_file, "kafka.password") or ""
    return {QUOTED_PASSWORD: _escaped(password)}


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')


def unquoted(value: str) -> str:
    """The password as it is, of that in `environment`."""
    return re.sub(r"\\(.)", r"\1", value, flags=re.DOTALL)


def hand_to_jvm(kafka: KafkaSettings) -> None:
    """Put the password where the JVM inherits it; to be called before the JVM starts."""
    os.environ.update(environment(kafka))


def hand_to_executors(settings: Settings, conf: Mapping[str, str]) -> dict[str, str]:
    """Settings of Spark that give executors elsewhere what `environment` gives this JVM.

    On Kubernetes there are none: Spark would write it into the description of each pod, so the
    pod template names the Secret. `conf`: all other settings of Spark.
    Raises `Fatal` where it would be seen on its way.
    """
    master = settings.spark.master
    if settings.kafka.user is None or settings.spark.local or master.startswith("k8s://"):
        return {}
    # Somebody hands it over in a way of their own, which stands above ours.
    if (name := f"spark.executorEnv.{QUOTED_PASSWORD}") in conf:
        return {}
    if master.startswith("yarn"):
        # Of the script that starts a container YARN keeps a copy among its logs, unless told not to
        # (yarn.nodemanager.log-container-debug-info.enabled).
        raise Fatal(
            "kafka.user: YARN would write its password into the logs of every executor; let the "
            "broker know us by kafka.certificate_file, on every node, with kafka.protocol = 'SSL'"
        )
    if conf.get("spark.network.crypto.enabled") != "true":
        raise Fatal(
            f"kafka.user: its password would go to the workers of {master} in clear; "
            "set spark.secret_file, with which Spark encrypts what it sends"
        )
    return {name: environment(settings.kafka)[QUOTED_PASSWORD]}


_DENIED = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


def denied(error: KafkaError | None) -> bool:
    """Whether the broker knows us and does not allow it."""
    return error is not None and error.code() in _DENIED


def lacking(kafka: KafkaSettings, what: str) -> Fatal:
    """That the broker's ACLs do not allow us `what`."""
    return Fatal(
        f"the Kafka broker does not allow user '{kafka.user or 'ANONYMOUS'}' to {what}; "
        "'headgate kafka acls' prints the rights each service needs"
    )


def unreachable(
    kafka: KafkaSettings, error: KafkaException, errors: list[KafkaError]
) -> HeadgateError:
    """Why no broker answered, from what the client was told on the way (`error_cb`)."""
    # The error itself says only that nobody answered in time.
    for complaint in errors:
        why = _short(complaint.str())
        if complaint.code() == KafkaError._AUTHENTICATION:
            return Fatal(
                f"the Kafka broker at {kafka.bootstrap} refuses user '{kafka.user}': {why}; check "
                "kafka.user, kafka.mechanism and kafka.password_file"
            )
        if complaint.code() == KafkaError._SSL:
            return Fatal(
                f"no TLS with the Kafka broker at {kafka.bootstrap}: {why}; check kafka.ca_file "
                "and that its certificate names that host"
            )
    listens = any(_listens(address) for address in kafka.bootstrap.split(","))
    return Retryable(
        f"no Kafka broker answers at {kafka.bootstrap} ({error.args[0].str()}); "
        + (
            f"something listens there: is kafka.protocol = '{kafka.protocol}' what it speaks?"
            if listens
            else "start one, or set kafka.bootstrap"
        )
    )


def _listens(address: str) -> bool:
    host, _, port = address.strip().rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=1.0):
            return True
    except (OSError, ValueError):
        return False


def _short(sub: str) -> str:
    """librdkafka's words without its own addresses, sources and hints at its own options."""
    sub = re.sub(r"^\S+://\S+?: ", "", sub)
    sub = re.sub(r"\S+\.c:\d+:OpenSSL error:[0-9A-F]+:", "", sub)
    return re.sub(r"(, verify that ssl\.ca\.location.*)?( \(after \d+ms in state.*\))?$", "", sub)
