"""Names that web servers and their operators give to the fields of a request.

nginx's variables, Apache's and IIS's columns, the Elastic Common Schema, and what is
usual in JSON formats that people write by hand. `fill` knows what each of them means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any
from zoneinfo import ZoneInfo

from ingest.parsing.ocsf import address
from ingest.parsing.timestamps import Stamp, stamp_clf, stamp_epoch, stamp_iso
from ingest.sources.shared.http_exchange import (
    CODE,
    NONE,
    PORT,
    Exchange,
    host_port,
    milliseconds,
    whole,
)

# Names by meaning, in lower case and without `-`, `_`, `.`, `$` and brackets.
_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "client": "remoteaddr remoteip clientip client clientaddr clientaddress cip remotehost "
        "ipaddress ip sourceip srcip sourceaddress remoteaddress realip ra networkclientip "
        "clientipaddress srcaddr",
        "client_port": "remoteport clientport cport sourceport srcport",
        "server_ip": "serveraddr serverip sip destinationip destinationaddress destip dstip",
        "server_port": "serverport sport destinationport destport dstport",
        "server_name": "servername vhost virtualhost serverhostname scomputername",
        "host": "host httphost cshost urldomain domain requesthost hostheader",
        "user": "remoteuser user username csusername usernam authuser",
        "request": "request requestline httprequest",
        "method": "requestmethod method verb httpmethod csmethod httprequestmethod rm",
        "target": "requesturi url uri requesturl urloriginal httpurl requestpath csuri ru",
        "path": "path csuristem uripath urlpath documenturi",
        "query": "args querystring query csuriquery urlquery requestquery",
        "version": "serverprotocol protocol httpversion httpprotocol csversion proto "
        "requestprotocol requesthttpversion",
        "scheme": "scheme requestscheme urlscheme",
        "code": "status statuscode responsecode response httpstatus scstatus code "
        "httpresponsestatuscode responsestatus httpcode responsestatuscode st",
        "length": "bodybytessent bodysize httpresponsebodybytes bodybytes responsebodybytes",
        "received": "bytessent bytes size responsesize scbytes bytesout bs responselength "
        "httpresponsebytes responsebytes responsebytessent",
        "sent": "requestlength requestbytes csbytes bytesin bytesreceived rl requestsize "
        "httprequestbytes requestbytesreceived",
        "referrer": "httpreferer httpreferrer referer referrer csreferer httprequestreferrer "
        "csreferrer headerreferer",
        "agent": "httpuseragent useragent agent csuseragent useragentoriginal ua "
        "headeruseragent httpagent",
        "xff": "httpxforwardedfor xforwardedfor xff forwardedfor csxforwardedfor "
        "httpxff originalip",
        "seconds": "requesttime responsetime rt requesttimeseconds requestduration elapsedtime",
        "millis": "timetaken durationms responsetimems requesttimems elapsedms latencyms",
        "micros": "durationus responsetimeus microseconds timeus timetakenus durationmicros",
        "content_type": "senthttpcontenttype responsecontenttype contenttype mimetype",
        "tls_version": "sslprotocol tlsprotocol tlsversion tlsversionnumber cryptprotocol",
        "cipher": "sslcipher tlscipher cryptcipher",
        "sni": "sslservername sslsni tlssni",
        "uid": "requestid reqid uniqueid xrequestid traceid httprequestid httpxrequestid",
    }
)

_SLOTS: Mapping[str, str] = MappingProxyType(
    {name: slot for slot, names in _NAMES.items() for name in names.split()}
)
TIMES = (
    "timeiso8601",
    "@timestamp",
    "timestamp",
    "timelocal",
    "msec",
    "time",
    "datetime",
    "ts",
    "date",
    "requesttimestamp",
    "localtime",
    "eventtime",
    "t",
)
"""Where the time may stand, the best first."""


def plain_name(name: str) -> str:
    """A field's name as `SLOTS` spells it: `cs(User-Agent)` is `csuseragent`."""
    return name.lower().translate(_PLAIN)


_PLAIN = str.maketrans(dict.fromkeys("-_.$() %{}", ""))


def flat(fields: Mapping[str, Any], prefix: str = "", depth: int = 0) -> dict[str, Any]:
    """Nested objects as `outer.inner`; what lies deeper than three levels stays an object."""
    results: dict[str, Any] = {}
    for name, value in fields.items():
        # Deeper nesting is no field of a request.
        if isinstance(value, dict) and value and depth < 3:
            results |= flat(value, f"{prefix}{name}.", depth + 1)
        else:
            results[prefix + name] = value
    return results


def stamp_of(value: object, zone: ZoneInfo, received_at: datetime) -> Stamp:
    """A time as people write it into JSON formats: CLF, with or without brackets, ISO, epoch."""
    if type(value) is not str:
        return stamp_epoch(value, received_at)
    text = value.strip("[]")
    stamp = stamp_clf(text, zone, received_at)
    if stamp.quality == "received":
        stamp = stamp_iso(text, zone, received_at)
    if stamp.quality == "received":
        stamp = stamp_epoch(text, received_at)
    if stamp.quality != "received":
        return stamp
    return Stamp.missing(received_at, value)


def take_time(fields: dict[str, Any], zone: ZoneInfo, received_at: datetime) -> Stamp | None:
    """Take the best time out of `fields`; None where there is no field for one."""
    names = {plain_name(name): name for name in fields}
    # A time that cannot be read still says so in the event, where no other field has a better one.
    worst: Stamp | None = None
    for time_name in TIMES:
        if time_name in names:
            stamp = stamp_of(fields[names[time_name]], zone, received_at)
            if stamp.quality != "received":
                del fields[names[time_name]]
                return stamp
            worst = worst or stamp
    return worst


def fill_all(x: Exchange, fields: Mapping[str, Any]) -> int:
    """Fill in all `fields`; those that mean nothing here, or do not fit, go to `rest`.

    Gives the number of those that did.
    """
    taken = 0
    for name, value in fields.items():
        # `-` is how access logs write that there is nothing.
        if value is None or value in ("", "-"):
            continue
        if fill(x, name, value):
            taken += 1
        else:
            x.rest[name] = value
    return taken


def fill(x: Exchange, name: str, value: object) -> bool:
    """Fill in one field by its name; False where it means nothing here or does not fit."""
    # The whole path first: the last word alone, such as `ip`, means less.
    slot = _SLOTS.get(plain_name(name)) or _SLOTS.get(plain_name(name.rpartition(".")[2]))
    if slot is None:
        return False
    setter = _SETTERS.get(slot)
    if setter is not None:
        return setter(x, value)
    if type(value) is not str:
        return False
    held = getattr(x, slot)
    if held is None:
        setattr(x, slot, value)
    return held is None or held == value or (slot == "target" and held.partition("?")[0] == value)


def _client(x: Exchange, value: object) -> bool:
    if type(value) is not str or x.client is not None:
        return False
    host, port = host_port(value)
    # A list is a header of proxies, which anybody can write, and no client.
    if host is None or "," in value or " " in value:
        return False
    x.client, x.client_port = host, x.client_port or port
    return True


def _number(slot: str, most: int) -> Callable[[Exchange, object], bool]:
    def put(x: Exchange, value: object) -> bool:
        number = whole(value, most)
        if number is None or getattr(x, slot) is not None:
            return False
        setattr(x, slot, number)
        return True

    return put


def _span(per_unit: float) -> Callable[[Exchange, object], bool]:
    def put(x: Exchange, value: object) -> bool:
        number = milliseconds(value, per_unit)
        if number is None or x.duration is not None:
            return False
        x.duration = number
        return True

    return put


def _server_ip(x: Exchange, value: object) -> bool:
    ip = address(value) if type(value) is str else None
    if ip is None or "ip" in x.server:
        return False
    x.server["ip"] = ip
    return True


def _server_port(x: Exchange, value: object) -> bool:
    port = whole(value, PORT)
    if port is None or "port" in x.server:
        return False
    x.server["port"] = port
    return True


def _server_name(x: Exchange, value: object) -> bool:
    # nginx calls a server that takes every name `_`.
    if type(value) is not str or value in ("_", *NONE) or "hostname" in x.server:
        return False
    x.server["hostname"] = value
    return True


def _request(x: Exchange, value: object) -> bool:
    if type(value) is not str or x.method is not None:
        return False
    x.request(value)
    return True


def _path(x: Exchange, value: object) -> bool:
    if type(value) is not str:
        return False
    # A format may log path and whole URI; the path is dropped only where both agree.
    x.target = value if x.target is None else x.target
    return x.target.partition("?")[0] == value


def _query(x: Exchange, value: object) -> bool:
    """The query belongs behind the path; where the target has one already, it is the same."""
    if type(value) is not str or x.target is None:
        return False
    query = value.removeprefix("?")
    if x.target.endswith(f"?{query}"):
        return True
    if "?" in x.target:
        return False
    x.target = f"{x.target}?{query}"
    return True


def _version(x: Exchange, value: object) -> bool:
    if type(value) is not str or (x.version is not None and value != f"HTTP/{x.version}"):
        return False
    x.version = value.removeprefix("HTTP/").removeprefix("http/")
    return True


def _xff(x: Exchange, value: object) -> bool:
    if type(value) is not str or x.xff is not None:
        return False
    x.forwarded_for(value)
    return x.xff is not None or x.rest.get("x_forwarded_for") == value


def _text(where: str, key: str) -> Callable[[Exchange, object], bool]:
    def put(x: Exchange, value: object) -> bool:
        held = getattr(x, where)
        if type(value) is not str or key in held:
            return False
        held[key] = value
        return True

    return put


_SETTERS: Mapping[str, Callable[[Exchange, object], bool]] = MappingProxyType(
    {
        "client": _client,
        "client_port": _number("client_port", PORT),
        "server_ip": _server_ip,
        "server_port": _server_port,
        "server_name": _server_name,
        "request": _request,
        "path": _path,
        "query": _query,
        "version": _version,
        "code": _number("code", CODE),
        "length": _number("length", 2**63 - 1),
        "received": _number("received", 2**63 - 1),
        "sent": _number("sent", 2**63 - 1),
        "xff": _xff,
        "seconds": _span(1000),
        "millis": _span(1),
        "micros": _span(0.001),
        "tls_version": _text("tls", "version"),
        "cipher": _text("tls", "cipher"),
        "sni": _text("tls", "sni"),
        "uid": _text("meta", "uid"),
    }
)
