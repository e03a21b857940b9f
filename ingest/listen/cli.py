"""Command `listen`: syslog and OpenTelemetry logs come in and go to Kafka."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from infra.config.settings import Settings
from infra.process.log import use


def build(subparsers: Any) -> None:
    """Add the command."""
    listen = subparsers.add_parser(
        "listen",
        help="take in syslog (TCP, TLS, UDP) and OpenTelemetry logs until interrupted",
        description="Takes in syslog and OpenTelemetry logs at the addresses of [listen] and hands "
        "them to the topics of sources. TCP and TLS are read only as fast as Kafka takes it; OTLP "
        "is answered once Kafka has it; what the kernel dropped of UDP is counted. At the end it "
        "waits listen.end_seconds for Kafka; what is left then stays in <home>/listen, is sent by "
        "the next start, and the exit code is 1.",
    )
    listen.set_defaults(run=run)


def run(_arguments: argparse.Namespace, settings: Settings) -> int:
    """Listen until interrupted. 1 when messages were left for the next start."""
    from infra.kafka.client import ensure_topics, require_broker
    from ingest.listen.kafka_sink import KafkaSink
    from ingest.listen.service import require_listen_sources, require_wanted, serve_doors

    require_wanted(settings)
    require_listen_sources(settings)
    use(settings.log_format)
    require_broker(settings.kafka)
    ensure_topics(settings, settings.listen.feeds, jobs=())
    return asyncio.run(serve_doors(settings, lambda loop: KafkaSink(settings.kafka, loop)))
