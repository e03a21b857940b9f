"""Commands `kafka` and `settings`: what the broker must allow, and what is set."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from infra.config.secrets import without_secrets
from infra.config.settings import Settings
from infra.config.tenants import feed_of
from infra.errors import Fatal, Usage
from infra.kafka.acls import SERVICES, Grant, acl_command, apply, grants
from infra.kafka.client import COMPACTION_LAG, COMPACTION_LAG_MS, ensure_topics, require_broker
from infra.kafka.topic_config import quicken, slowly_compacted
from infra.process.table_output import add_output_option, print_document, print_rows

_COLUMNS = ("service", "user", "resource", "name", "pattern", "operation", "permission")


def build(commands: Any) -> None:
    """Register the commands."""
    kafka = commands.add_parser("kafka", help="topics and rights at the broker")
    what = kafka.add_subparsers(dest="what", required=True)
    acls = what.add_parser(
        "acls",
        help="the rights each service needs",
        description="Print or set the rights each service needs. Services: "
        + "; ".join(f"{name} ({about})" for name, (about, _) in SERVICES.items()),
    )
    acls.add_argument(
        "--user",
        action="append",
        default=[],
        metavar="SERVICE=USER",
        help="a service and its user at the broker (default: all, as headgate-SERVICE)",
    )
    acls.add_argument(
        "--source", action="append", default=[], help="narrow the forwarder to this source's topic"
    )
    _add_tenant_option(acls)
    acls.add_argument("--apply", action="store_true", help="set them, as the user of the settings")
    add_output_option(acls, "commands")
    acls.set_defaults(run=_acls)
    topics = what.add_parser("topics", help="make our own topics and those of sources")
    topics.add_argument("source", nargs="*", help="such as sshd or zeek:conn")
    _add_tenant_option(topics)
    topics.add_argument(
        "--apply",
        action="store_true",
        help=f"also bring {COMPACTION_LAG} to compacted topics of ours that were there before",
    )
    topics.set_defaults(run=_topics)
    settings_parser = commands.add_parser("settings", help="what is set, secrets as *****")
    add_output_option(settings_parser, default="json")
    settings_parser.set_defaults(run=_settings)


def _add_tenant_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tenant", help="of the sources: the topics of this tenant's logs")


def _feeds(arguments: argparse.Namespace, settings: Settings) -> list[str]:
    """What the topics of the sources are named by."""
    tenant: str | None = arguments.tenant
    if tenant is None:
        return list(arguments.source)
    if tenant not in settings.tenants:
        raise Usage(f"--tenant {tenant}: no such tenant; list it in tenants of the settings")
    # Without sources it would be the topics of all tenants.
    if not arguments.source:
        raise Usage(f"--tenant {tenant}: name its sources as well")
    return [feed_of(source, tenant) for source in arguments.source]


def _acls(arguments: argparse.Namespace, settings: Settings) -> int:
    users = _users(arguments.user)
    feeds = _feeds(arguments, settings)
    acls = {who: grants(service, settings, feeds) for service, who in users.items()}
    if arguments.apply:
        count = apply(settings, acls)
        print(f"{count} rights are set at {settings.kafka.bootstrap}", file=sys.stderr)
        return 0
    if arguments.output == "commands":
        for who, given in acls.items():
            for grant in given:
                print(acl_command(grant, who, settings.kafka.bootstrap))
        return 0
    rows = [_row(service, who, grant) for service, who in users.items() for grant in acls[who]]
    print_rows(rows, arguments.output, _COLUMNS)
    return 0


def _row(service: str, user: str, grant: Grant) -> Mapping[str, str]:
    return {
        "service": service,
        "user": user,
        "resource": grant.resource,
        "name": grant.name,
        "pattern": grant.pattern,
        "operation": grant.operation,
        "permission": "allow" if grant.allow else "deny",
    }


def _users(given: Sequence[str]) -> dict[str, str]:
    """User by service; raises `Usage` for a service that is none, or a user that has two."""
    users: dict[str, str] = {}
    for text in given:
        service, equals, user = text.partition("=")
        if not equals or not user or service not in SERVICES:
            raise Usage(f"--user {text}: write SERVICE=USER; services are {', '.join(SERVICES)}")
        users[service] = user
    if len(set(users.values())) < len(users):
        raise Usage("--user: one user for two services has the rights of both; give each its own")
    return users or {service: f"headgate-{service}" for service in SERVICES}


def _topics(arguments: argparse.Namespace, settings: Settings) -> int:
    require_broker(settings.kafka)
    ensure_topics(settings, _feeds(arguments, settings))
    print(f"topics: there at {settings.kafka.bootstrap}", file=sys.stderr)
    try:
        late = slowly_compacted(settings.kafka)
    except Fatal:
        if arguments.apply:
            raise
        return 0  # who may only use topics has seen that they are there
    if arguments.apply:
        quicken(settings.kafka, late)
    for name in late:
        done = "is set now" if arguments.apply else "is not set or longer; set it with --apply"
        print(f"{name}: {COMPACTION_LAG}={COMPACTION_LAG_MS} {done}", file=sys.stderr)
    return 0


def _settings(arguments: argparse.Namespace, settings: Settings) -> int:
    values = without_secrets(settings.model_dump())
    if arguments.output == "json":
        print_document(values, indent=1)
        return 0
    rows = [
        {"setting": f"{section}.{name}" if name else section, "value": value}
        for section, inside in values.items()
        for name, value in (inside.items() if isinstance(inside, dict) else [("", inside)])
    ]
    print_rows(rows, arguments.output)
    return 0
