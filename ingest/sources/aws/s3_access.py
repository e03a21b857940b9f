"""Server access logs of Amazon S3.

https://docs.aws.amazon.com/AmazonS3/latest/userguide/LogFormat.html : fields separated by spaces,
texts in quotes, the time in brackets; new fields have been added at the end. What a client chooses
(key, request, referrer, agent) stands behind its address.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import zip_longest

from ingest.parsing.framed_source import FramedSource
from ingest.parsing.ocsf import kept
from ingest.parsing.source import Context, Event
from ingest.parsing.syslog import Line
from ingest.parsing.timestamps import stamp_clf
from ingest.sources.shared.http_exchange import NONE, Exchange, http_event, whole
from ingest.sources.shared.web_timestamps import replacing, write_clf

_PRODUCT: Mapping[str, str] = {"name": "S3", "vendor_name": "AWS"}
_START = re.compile(
    r"(?P<owner>[0-9a-f]{64}|[\w-]{1,64}) (?P<bucket>\S{1,255}) \[(?P<time>[^\]]{20,40})\] "
    r"(?P<ip>\S{1,60}) (?P<requester>\S{1,512}) (?P<request_id>\S{1,64}) "
    r"(?P<operation>[A-Z][A-Za-z0-9]{1,20}\.[\w.]{1,100}) (?P<rest>.*)",
    re.ASCII | re.DOTALL,
)
_WORD = re.compile(r'"(?P<quoted>[^"]*+)"(?= |\Z)|(?P<plain>\S+)')
_WORDS_NAMES = """
    key request_uri http_status error_code bytes_sent object_size total_time turn_around_time
    referer user_agent version_id host_id signature_version cipher_suite authentication_type
    host_header tls_version access_point_arn acl_required source_region
"""
_NAMES = _WORDS_NAMES.split()


def _read(line: Line, context: Context) -> Event | None:
    """A request; None for what is no line of such a log."""
    match = _START.fullmatch(line.text)
    words = (
        [
            word["plain"] if word["plain"] is not None else word["quoted"]
            for word in _WORD.finditer(match["rest"])
        ]
        if match
        else []
    )
    if match is None or len(words) < 8:
        return None
    fields = {
        name or f"column_{index + 8}": word
        for index, (name, word) in enumerate(zip_longest(_NAMES, words))
        if word is not None and word not in NONE
    }
    stamp = stamp_clf(match["time"], context.zone(None), context.record.received_at)
    x = Exchange()
    x.client = None if match["ip"] in NONE else match["ip"]
    x.user = None if match["requester"] in NONE else match["requester"]
    x.request(fields.pop("request_uri", "-"))
    x.agent, x.referrer = fields.pop("user_agent", None), fields.pop("referer", None)
    x.code = whole(fields.pop("http_status", None), 999)
    x.received = whole(fields.pop("bytes_sent", None))
    x.duration = whole(fields.pop("total_time", None))
    x.host = fields.pop("host_header", None)
    x.tls = kept(cipher=fields.pop("cipher_suite", None), version=fields.pop("tls_version", None))
    x.meta = kept(event_code=match["operation"], correlation_uid=match["request_id"])
    x.rest = line.rest | fields | {"bucket": match["bucket"], "owner": match["owner"]}
    error = fields.get("error_code")
    # An ARN has colons and slashes, and is a name all the same.
    return http_event(x, stamp, _PRODUCT, host=line.host, status_detail=error)


_TIME = re.compile(r"[^\[]{1,400}\[(?P<time>[^\]]{20,40})\]", re.ASCII)

SOURCES = (
    FramedSource(
        name="aws_s3_access",
        programs=frozenset({"aws_s3_access"}),
        product=_PRODUCT,
        reader=_read,
        bare_first=True,
        restamper=replacing(_TIME, write_clf),
    ),
)
