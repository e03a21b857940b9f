"""What topics are set to at the broker, and what compacted ones that are there lack."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public, not listed
    AlterConfigOpType,
    ConfigEntry,
)
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

from infra.config.settings import KafkaSettings
from infra.errors import Retryable
from infra.kafka.auth import denied, lacking
from infra.kafka.client import COMPACTION_LAG, COMPACTION_LAG_MS, admin, own_topics

_Told = Mapping[str, str]
"""A topic's settings, by their names at the broker."""


def topics(kafka: KafkaSettings) -> set[str]:
    """All topics that the broker has, as far as we may see them. Raises `Retryable`."""
    try:
        return set(admin(kafka).list_topics(timeout=10).topics)
    except KafkaException as error:
        raise Retryable(f"the broker does not answer: {error.args[0].str()}") from None


def topic_settings(kafka: KafkaSettings, names: Iterable[str]) -> dict[str, _Told]:
    """The settings of some topics that are there.

    Raises `Fatal` when we may not read them, `Retryable` when the broker does not say them.
    """
    client = admin(kafka)  # kept: what it was asked ends with it
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in names]
    answers = client.describe_configs(resources) if resources else {}
    return {
        resource.name: {name: entry.value for name, entry in _result(kafka, answer).items()}
        for resource, answer in answers.items()
    }


def slowly_compacted(kafka: KafkaSettings) -> dict[str, int]:
    """Compacted topics of ours that keep former values longer than new ones do: milliseconds."""
    there = topics(kafka)
    made = {topic.topic for topic in own_topics(kafka) if COMPACTION_LAG in (topic.config or {})}
    results = {
        name: int(settings[COMPACTION_LAG])
        for name, settings in topic_settings(kafka, sorted(made & there)).items()
        if "compact" in settings["cleanup.policy"]
    }
    return {name: millis for name, millis in results.items() if millis > COMPACTION_LAG_MS}


def quicken(kafka: KafkaSettings, names: Iterable[str]) -> None:
    """Let these topics keep former values no longer than new ones do; all else stays as it is.

    Raises `Fatal` when we may not, `Retryable` when the broker does not do it.
    """
    client = admin(kafka)
    entry = ConfigEntry(
        COMPACTION_LAG,
        str(COMPACTION_LAG_MS),
        incremental_operation=AlterConfigOpType.SET,
    )
    changes = [
        ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry]) for name in names
    ]
    # The older `alter_configs` resets each setting that it is not given.
    for answer in client.incremental_alter_configs(changes).values() if changes else ():
        _result(kafka, answer, "change settings of topics (AlterConfigs)")


def _result(
    kafka: KafkaSettings, answer: Any, what: str = "read settings of topics (DescribeConfigs)"
) -> Any:
    try:
        return answer.result(20)
    except KafkaException as error:
        if denied(error.args[0]):
            raise lacking(kafka, what) from None
        raise Retryable(f"settings of topics: {error.args[0].str()}") from None
    except TimeoutError:
        raise Retryable("settings of topics: the broker does not answer") from None
