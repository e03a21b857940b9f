"""Schemas by id, from a registry's REST interface or from a folder.

Interface: https://docs.confluent.io/platform/current/schema-registry/develop/api.html
"""

from __future__ import annotations

import base64
import json
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.parse import quote, unquote, urlsplit, urlunsplit
from urllib.request import Request, urlopen

from infra.errors import Retryable
from ingest.parsing.source import Unreadable

_MAGIC = 0
_TIMEOUT_SECONDS = 10.0
LARGEST = 4 * 1024 * 1024
"""Bytes of a schema; a registry that sends more is not asked on."""


class Schema(NamedTuple):
    """A schema as registered: its text, and the schemas it names, each before who needs it."""

    name: str
    text: str
    references: tuple[Schema, ...] = ()


def split_schema_id(raw: bytes) -> tuple[int, bytes]:
    """The id of a framed message's schema, and what follows. Raises `Unreadable`."""
    if len(raw) < 5 or raw[0] != _MAGIC:
        raise Unreadable("no schema id in front: the message is not framed as a registry's are")
    return int.from_bytes(raw[1:5], "big"), raw[5:]


@lru_cache(maxsize=1024)
def schema(registry: str, number: int, form: str) -> Schema | None:
    """The schema of an id, None when there is none. `form`: "avro" or "protobuf".

    Raises `Retryable` when the registry does not answer.
    """
    if "://" not in registry:
        file = Path(registry) / f"{number}{'.avsc' if form == 'avro' else '.desc'}"
        try:
            content = file.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Retryable(f"{file}: cannot be read ({error.strerror})") from None
        text = content.decode() if form == "avro" else base64.b64encode(content).decode()
        return Schema(file.name, text)
    answer = _asked(registry, f"/schemas/ids/{number}", form)
    return None if answer is None else _with_references(registry, str(number), answer, form)


def _with_references(registry: str, name: str, answer: dict[str, Any], form: str) -> Schema:
    named = []
    for reference in answer.get("references") or ():
        path = (
            f"/subjects/{quote(reference['subject'], safe='')}/versions/{int(reference['version'])}"
        )
        body = _asked(registry, path, form)
        if body is None:
            raise Retryable(f"the schema registry names {path} and does not have it")
        named.append(_with_references(registry, reference["name"], body, form))
    return Schema(name, str(answer["schema"]), tuple(named))


def _asked(registry: str, path: str, form: str) -> dict[str, Any] | None:
    """The registry's answer, None for 404. Of Protobuf it sends a descriptor, not text."""
    parts = urlsplit(registry)
    # Without the user and password, which must not stand in an error or a log.
    host = parts.netloc.rpartition("@")[2]
    query = "format=serialized" if form == "protobuf" else ""
    url = urlunsplit((parts.scheme, host, parts.path.rstrip("/") + path, query, ""))
    request = Request(url, headers={"Accept": "application/vnd.schemaregistry.v1+json"})
    if parts.username is not None:
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        request.add_header("Authorization", f"Basic {base64.b64encode(user.encode()).decode()}")
    try:
        with urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:
            decoded: dict[str, Any] = json.loads(answer.read(LARGEST))
            return decoded
    except HTTPError as error:
        # That the schema is missing is the message's fault; all else is tried again.
        if error.code == 404:
            return None
        raise Retryable(f"schema registry {host}: {path}: {error.code} {error.reason}") from None
    except (URLError, OSError, ValueError) as error:
        raise Retryable(f"schema registry {host} does not answer: {error}") from None
