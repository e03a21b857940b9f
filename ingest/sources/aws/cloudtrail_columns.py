"""CloudTrail's API calls, one a message, many at once.

Each message is read as strictly as alone (`decode_object`), and what is nested is read by the
functions of `ingest.sources.aws.cloudtrail_event` themselves: who called once for each identity
that occurs, resources once a record. Only what stands at the top of a record is taken column by
column. Whatever is unusual is left to the row reader: an envelope or a file, several lines,
signing in or out, a time without its zone, a value of another type, an account of a domain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ingest.parsing.arrow_columns import column, joined
from ingest.parsing.ocsf import (
    A_CREDENTIAL,
    A_RESOURCE,
    A_USER,
    AN_AGENT,
    AN_IP,
    API,
    FAILURE,
    SUCCESS,
    VERSION,
)
from ingest.parsing.source import ParseSettings, Read, Unreadable
from ingest.parsing.strict_json import decode_object
from ingest.parsing.vectorized import (
    addresses,
    arrow_type_of,
    batch_of,
    classified,
    constant,
    exact_times,
    null_where,
    observables,
    only_where,
    read_of,
    record_columns,
    struct,
    taken,
)
from ingest.sources.aws.cloudtrail_event import (
    CLOUDTRAIL,
    LOGSTASH_TIME,
    activity_of_call,
    actor_of,
    resources_of,
    signing_in,
)
from ingest.sources.cloud.common import Fields

_TEXT, _INT = pa.string(), pa.int32()
_encode = msgspec.json.Encoder().encode
_LONGEST = 64 * 1024
"""Bytes of a record read here; longer ones are read under a bound on their time."""
_TOGETHER = 1_000
"""Records held as dictionaries at once."""
_MOST_RESOURCES = 4
_NAME, _SERVICE, _TIME = "eventName", "eventSource", "eventTime"
_TEXTS = (
    *(_NAME, _SERVICE, _TIME, "recipientAccountId", "awsRegion", "userAgent"),
    *("sourceIPAddress", "eventCategory", "eventID", "sharedEventID", "errorCode"),
    *("errorMessage", "requestID", "apiVersion"),
)
_TEXT_OR_NULL = frozenset({str, type(None)})


def read_calls(source: str, records: pa.RecordBatch, settings: ParseSettings) -> Read:
    """The events of those of `records`, all of `source`, that are calls as they mostly are."""
    raws = records.column("raw").to_numpy(zero_copy_only=False).tolist()
    # A header may refuse the record or name its sender, which only the row reader knows.
    plain = np.asarray(records.column("headers").is_null()).tolist()
    calls = _Calls()
    for start in range(0, len(raws), _TOGETHER):
        calls.add(*_decoded(raws, plain, range(start, min(start + _TOGETHER, len(raws)))))
    times = exact_times(calls.array(_TIME))
    if times.null_count:
        timed = times.is_valid()
        times = times.filter(timed)
        calls.keep(np.asarray(timed))
    rows = len(calls.places)
    if not rows:
        return Read(None, list(range(len(raws))))
    columns = record_columns(records, source, calls.places) | _columns(calls)
    columns |= {
        "scope": constant(settings.scope(None, source), rows),
        "time": times,
        "time_quality": constant("exact", rows),
    }
    return read_of(batch_of(rows, columns), len(raws), calls.places)


def _decoded(
    raws: list[bytes | None], plain: list[bool], places: range
) -> tuple[list[Fields], list[int]]:
    """The records that are one object on one line and have the names of a call; their places."""
    fields, kept = [], []
    for place in places:
        raw = raws[place]
        if raw is None or not plain[place] or raw[:1] != b"{" or len(raw) >= _LONGEST:
            continue
        # Several lines may be several records.
        if b"\n" in raw or b"\r" in raw:
            continue
        try:
            record = decode_object(raw)
        except Unreadable:
            continue  # the row reader says why
        if _NAME in record and _SERVICE in record and "Records" not in record:
            fields.append(record)
            kept.append(place)
    return fields, kept


class _Calls:
    """What was taken out of records of calls, by column, and what is left of each."""

    def __init__(self) -> None:
        self.places: list[int] = []
        self.texts: dict[str, list[str | None]] = {name: [] for name in _TEXTS}
        self.reads: list[bool] = []
        """Whether the record says that the call only reads."""
        self.actors: list[dict[str, Any]] = []
        self.actor_of: list[int] = []
        self.resources: list[list[dict[str, Any]] | None] = []
        self.rest: list[bytes | None] = []
        """As JSON."""
        self._known: dict[tuple[bytes, str], tuple[int, Fields] | None] = {}

    def add(self, fields: Sequence[Fields], places: Sequence[int]) -> None:
        """Take in the usual ones of these records."""
        texts = {name: [row.pop(name, None) for row in fields] for name in _TEXTS}
        # Where Logstash puts the time; there it stays.
        texts[_TIME] = [
            row.get(LOGSTASH_TIME) if time is None else time
            for time, row in zip(texts[_TIME], fields, strict=True)
        ]
        good = self._usual(texts, len(fields))
        if not all(good):
            fields, places = list(compress(fields, good)), list(compress(places, good))
            texts = {name: list(compress(values, good)) for name, values in texts.items()}
        actors = [
            self._actor(row, service or "")
            for row, service in zip(fields, texts[_SERVICE], strict=True)
        ]
        resources = [resources_of(row) if "resources" in row else None for row in fields]
        usual = [
            actor is not None and len(few or ()) <= _MOST_RESOURCES
            for actor, few in zip(actors, resources, strict=True)
        ]
        self.places += compress(places, usual)
        self.actor_of += [actor for actor in compress(actors, usual) if actor is not None]
        self.resources += compress(resources, usual)
        for name, values in texts.items():
            self.texts[name] += compress(values, usual)
        for row in compress(fields, usual):
            self.reads.append(row.get("readOnly") is True)
            self.rest.append(_encode(row) if row else None)

    def _usual(self, texts: dict[str, list[Any]], rows: int) -> list[bool]:
        good = [True] * rows
        for values in texts.values():
            if not _TEXT_OR_NULL.issuperset(map(type, values)):
                good = [
                    both and type(value) in _TEXT_OR_NULL
                    for both, value in zip(good, values, strict=True)
                ]
        pairs = zip(texts[_NAME], texts[_SERVICE], strict=True)
        return [
            both and bool(name and service) and signing_in(name, service) is None
            for both, (name, service) in zip(good, pairs, strict=True)
        ]

    def _actor(self, row: Fields, service: str) -> int | None:
        """The number of the record's actor, taken out; None where the row reader must look."""
        identity = row.get("userIdentity")
        key = (_encode(identity), service)
        # Few identities occur, however many records there are.
        if key not in self._known:
            self._known[key] = self._new_actor({} if identity is None else identity, service)
        entry = self._known[key]
        if entry is None:
            return None
        if entry[1]:
            row["userIdentity"] = entry[1]
        else:
            row.pop("userIdentity", None)
        return entry[0]

    def _new_actor(self, identity: Any, service: str) -> tuple[int, Fields] | None:
        if type(identity) is not dict:
            return None
        try:
            actor = actor_of(identity, service)
        except Unreadable:
            return None
        # `DOMAIN\user` is split record by record.
        if "\\" in ((actor["user"] or {}).get("name") or ""):
            return None
        self.actors.append(actor)
        return len(self.actors) - 1, identity

    def keep(self, good: npt.NDArray[np.bool_]) -> None:
        """Only those records; the others are left to the row reader."""
        for name in ("places", "reads", "actor_of", "resources", "rest"):
            setattr(self, name, list(compress(getattr(self, name), good)))
        self.texts = {name: list(compress(values, good)) for name, values in self.texts.items()}

    def array(self, name: str) -> pa.Array:
        """A text's values."""
        return pa.array(self.texts[name], _TEXT)

    def filled(self, name: str) -> pa.Array:
        """The values, null for empty ones."""
        values = self.array(name)
        return null_where(pc.equal(values, ""), values)

    def of_user(self, name: str) -> pa.Array:
        """What the user of each record has under `name`."""
        values = [(actor["user"] or {}).get(name) for actor in self.actors]
        return pa.array(values, _TEXT).take(pa.array(self.actor_of, _INT))


def _columns(calls: _Calls) -> dict[str, pa.Array]:
    rows = len(calls.places)
    operation, service = calls.array(_NAME), calls.array(_SERVICE)
    user, key = calls.of_user("name"), calls.of_user("credential_uid")
    agent, written = calls.filled("userAgent"), calls.filled("sourceIPAddress")
    ip = addresses(written)
    error, words = calls.array("errorCode"), calls.array("errorMessage")
    failed = pc.or_(error.is_valid(), words.is_valid())
    status = pc.if_else(failed, pa.scalar(FAILURE, _INT), pa.scalar(SUCCESS, _INT))
    return classified(API, _activities(calls), status, rows) | {
        "status_code": error,
        "status_detail": words,
        "src_ip": ip,
        "user_name": user,
        "metadata": struct(
            "metadata",
            rows,
            version=constant(VERSION, rows),
            product=_constants("metadata.product", rows, CLOUDTRAIL),
            log_name=calls.array("eventCategory"),
            event_code=operation,
            uid=calls.array("eventID"),
            correlation_uid=calls.array("sharedEventID"),
        ),
        "src_endpoint": struct(
            "src_endpoint",
            rows,
            pc.is_null(written),
            ip=ip,
            # It may be the name of an AWS service, which is no host.
            svc_name=only_where(pc.is_null(ip), written),
        ),
        "cloud": _cloud(calls),
        "http_request": struct("http_request", rows, pc.is_null(agent), user_agent=agent),
        "actor": taken(
            column(calls.actors, arrow_type_of("actor"), "actor"), pa.array(calls.actor_of, _INT)
        ),
        "api": _api(calls, operation, service, pc.invert(failed)),
        "resources": column(calls.resources, arrow_type_of("resources"), "resources"),
        "observables": observables(
            rows,
            ("src_endpoint.ip", AN_IP, ip),
            ("actor.user.name", A_USER, user),
            ("http_request.user_agent", AN_AGENT, agent),
            ("actor.user.credential_uid", A_CREDENTIAL, key),
            *(("resources[].uid", A_RESOURCE, uids) for uids in _resource_uids(calls)),
        ),
        "unmapped": joined(calls.rest, _TEXT),
    }


def _constants(path: str, rows: int, values: Mapping[str, str]) -> pa.Array:
    return struct(path, rows, **{name: constant(value, rows) for name, value in values.items()})


def _cloud(calls: _Calls) -> pa.Array:
    rows, account = len(calls.places), calls.filled("recipientAccountId")
    return struct(
        "cloud",
        rows,
        provider=constant("AWS", rows),
        region=calls.array("awsRegion"),
        account=struct("cloud.account", rows, pc.is_null(account), uid=account),
    )


def _api(calls: _Calls, operation: pa.Array, service: pa.Array, succeeded: pa.Array) -> pa.Array:
    rows, request = len(calls.places), calls.filled("requestID")
    return struct(
        "api",
        rows,
        operation=operation,
        version=calls.array("apiVersion"),
        service=struct("api.service", rows, name=service),
        request=struct("api.request", rows, pc.is_null(request), uid=request),
        response=struct(
            "api.response",
            rows,
            succeeded,
            error=calls.array("errorCode"),
            error_message=calls.array("errorMessage"),
        ),
    )


def _activities(calls: _Calls) -> pa.Array:
    pairs = list(zip(calls.texts[_NAME], calls.reads, strict=True))
    activities = {(name, reads): activity_of_call(name or "", reads) for name, reads in set(pairs)}
    return pa.array([activities[pair] for pair in pairs], _INT)


def _resource_uids(calls: _Calls) -> list[pa.Array]:
    """The first resource of each record, the second, and so on; each but once a record."""
    uids = [list(dict.fromkeys(each["uid"] for each in few or ())) for few in calls.resources]
    most = max(map(len, uids))
    return [
        pa.array([each[place] if len(each) > place else None for each in uids], _TEXT)
        for place in range(most)
    ]
