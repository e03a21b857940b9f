"""What FortiOS's security profiles see: pages, names, mails, attacks."""

from __future__ import annotations

from typing import Any

from ingest.parsing.ocsf import (
    A_FILE,
    A_HASH,
    A_HOST,
    A_MAIL,
    A_URL,
    AN_AGENT,
    DNS,
    EMAIL,
    FINDING,
    HTTP,
    HTTP_METHODS,
    OTHER,
    SMB,
    SSH,
    UNKNOWN,
    address,
    kept,
)
from ingest.parsing.source import Event
from ingest.sources.fortinet.traffic_logs import Log, session
from ingest.sources.shared.firewall import (
    Fields,
    code,
    ends_seen,
    file_hash,
    firewall_disposition,
    located,
    severity,
    traffic,
)

_FINDINGS = frozenset(
    {"virus", "ips", "anomaly", "dlp", "waf", "attack", "virtual-patch", "casb", "malware-list"}
)


def of_utm(log: Log) -> Event:
    """What a security profile saw."""
    # Releases differ: `type=utm subtype=dns`, or the profile as the type itself.
    subtype = log.subtype if log.kind == "utm" else log.subtype or log.kind
    has_url = log.fields.get("url") and log.fields.get("hostname")
    if subtype == "webfilter" or log.kind == "webfilter" or (subtype == "app-ctrl" and has_url):
        return _page(log)
    if subtype == "dns" or log.kind == "dns":
        return name_asked(log)
    if subtype == "emailfilter" or log.kind == "emailfilter":
        return _mail(log)
    if subtype in ("cifs", "file-filter") and log.fields.get("filename"):
        return _shared_file(log)
    if subtype == "ssh" or log.kind == "ssh":
        return _shell(log)
    if subtype in _FINDINGS or log.kind in _FINDINGS:
        return _finding(log)
    return session(log)


def _page(log: Log) -> Event:
    """A page that was asked for (webfilter)."""
    fields = log.fields
    common = log.common()
    allowed = log.allowed()
    source, target = log.ends()
    user = log.user()
    host, path, agent = fields.text("hostname"), fields.text("url"), fields.text("agent")
    method = fields.text("httpmethod")
    scheme = (fields.get("service") or "http").lower()
    # Some releases log the whole URL in `url`, others only its path.
    whole = path is not None and "://" in path[:12]
    url = path if whole or not host else f"{scheme}://{host}{path or '/'}"
    only = path.partition("?") if path and not whole else ("", "", "")
    return located(
        HTTP,
        HTTP_METHODS.get((method or "").upper(), OTHER if method else UNKNOWN),
        log.stamp,
        **firewall_disposition(allowed),
        message=fields.text("msg") or f"{url}: {fields.get('action')}",
        http_request=kept(
            http_method=method,
            user_agent=agent,
            referrer=fields.text("referralurl"),
            url=kept(
                url_string=url,
                hostname=host,
                path=only[0] or None,
                query_string=only[2] or None,
                scheme=scheme if url and not whole and scheme in ("http", "https") else None,
            )
            or None,
        )
        or None,
        src_endpoint=source,
        dst_endpoint=target,
        actor={"user": user} if user else None,
        connection_info=log.connection(source),
        traffic=_traffic(fields),
        app_name=fields.text("service"),
        firewall_rule=log.rule(),
        observables=ends_seen(
            source,
            target,
            user,
            ("http_request.url.url_string", A_URL, url),
            ("http_request.url.hostname", A_HOST, host),
            ("http_request.user_agent", AN_AGENT, agent),
        ),
        **common,
        unmapped=log.rest(),
    )


def _traffic(fields: Fields) -> dict[str, Any] | None:
    return traffic(fields.number("sentbyte"), fields.number("rcvdbyte"))


def name_asked(log: Log) -> Event:
    """A name that was asked for, or its answer (dns)."""
    fields = log.fields
    common = log.common()
    allowed = log.allowed()
    source, target = log.ends()
    user = log.user()
    name = fields.text("qname")
    answered = str(fields.get("eventtype", "")).startswith("dns-response")
    ipaddr = fields.get("ipaddr")
    ips = [address(word.strip()) for word in ipaddr.split(",")] if type(ipaddr) is str else []
    answers = [{"rdata": word} for word in ips if word]
    # Only where all of it was addresses: a part that was not taken must stay readable.
    if answers and all(ips):
        del fields["ipaddr"]
    rcode = fields.number("rcode", most=65535)
    return located(
        DNS,
        2 if answered else 1,
        log.stamp,
        **firewall_disposition(allowed),
        message=fields.text("msg") or f"DNS {'answer for' if answered else 'query'} {name}",
        query=kept(hostname=name, type=fields.text("qtype"), **{"class": fields.text("qclass")})
        if name
        else None,
        answers=answers or None,
        rcode_id=code(rcode),
        src_endpoint=source,
        dst_endpoint=target,
        actor={"user": user} if user else None,
        connection_info=log.connection(source),
        firewall_rule=log.rule(),
        observables=ends_seen(source, target, user, ("query.hostname", A_HOST, name)),
        **common,
        unmapped=log.rest(),
    )


def _mail(log: Log) -> Event:
    """A mail that a filter looked at."""
    fields = log.fields
    common = log.common()
    allowed = log.allowed()
    source, target = log.ends()
    sender, to = fields.text("from", "sender"), fields.text("to", "recipient")
    return located(
        EMAIL,
        3,
        log.stamp,
        **firewall_disposition(allowed),
        message=fields.text("msg") or f"Mail from {sender}",
        email=kept(subject=fields.text("subject"), to=[to] if to else None, **{"from": sender})
        or {"subject": "unknown"},
        more={"direction_id": 0},
        src_endpoint=source,
        dst_endpoint=target,
        firewall_rule=log.rule(),
        observables=ends_seen(source, target, None, ("email.from", A_MAIL, sender)),
        **common,
        unmapped=log.rest(),
    )


def _shared_file(log: Log) -> Event:
    """A file that somebody moved to or from a share (cifs), or in another way."""
    fields = log.fields
    file = kept(path=fields.text("filename"), size=fields.number("filesize"))
    if "cifs" not in (log.subtype, log.kind):
        return session(log, file=file)
    # OCSF's SMB Activity has other words; FortiOS' own say what was done.
    word = fields.get("cmdtype") or fields.get("eventtype")
    return session(log, SMB, OTHER, word if type(word) is str else "Other", file=file)


def _shell(log: Log) -> Event:
    """A channel or a command of an SSH session that the firewall looks into."""
    fields = log.fields
    # `user` is who logged in at the firewall, `login` the name on the other side.
    if not fields.get("user") and fields.get("login"):
        fields["user"] = fields.pop("login")
    command = fields.get("command")
    if type(command) is str and command and not fields.get("msg"):
        fields["msg"] = f"ssh {fields.get('action', '')}: {command}"
    return session(log, SSH)


def _finding(log: Log) -> Event:
    """An attack, a virus, an anomaly."""
    fields = log.fields
    common = log.common()
    allowed = log.allowed()
    source, target = log.ends()
    user = log.user()
    uid = fields.text("attackid", "virusid", "filteridx")
    title = fields.text("attack", "virus", "filtername", "dtype") or log.subtype
    # The finding's own grade; `level` only grades the log line.
    level = fields.text("severity") or fields.get("crlevel")
    if type(level) is str:
        common["severity_id"] = severity(level, common["severity_id"])
    path, sha = fields.text("filename"), fields.text("filehash", "analyticscksum")
    hashes = file_hash(sha)
    if not hashes:
        fields.keep("filehash", sha)
    host, path_asked = fields.get("hostname"), fields.get("url")
    url = None
    if type(path_asked) is str and path_asked:
        whole = "://" in path_asked[:12] or not host
        url = fields.pop("url") if whole else f"http://{host}{path_asked}"
        fields.pop("url", None)
    # In a finding the status says how far people are with it, not whether the traffic got through.
    evidence = {
        key: value for key, value in firewall_disposition(allowed).items() if key != "status_id"
    }
    return located(
        FINDING,
        1,
        log.stamp,
        **evidence,
        message=fields.text("msg") or title,
        finding_info={
            "uid": uid or str(common["metadata"]["event_code"] or "unknown"),
            "title": title,
            "types": [log.subtype] if log.subtype else None,
            "src_url": fields.text("ref"),
            "created_time": log.stamp.time,
            "analytic": kept(uid=uid, name=title, category=log.subtype or None, type_id=1),
        },
        file=kept(path=path, hashes=hashes, size=fields.number("filesize"))
        if path or hashes
        else None,
        http_request=kept(
            http_method=fields.text("httpmethod"),
            user_agent=fields.text("agent"),
            referrer=fields.text("referralurl"),
            url=kept(url_string=url, hostname=fields.text("hostname")),
        )
        if url
        else None,
        src_endpoint=source,
        dst_endpoint=target,
        actor={"user": user} if user else None,
        connection_info=log.connection(source),
        firewall_rule=log.rule(),
        more={"is_alert": True},
        observables=ends_seen(
            source,
            target,
            user,
            ("file.path", A_FILE, path),
            ("file.hashes", A_HASH, sha),
            ("http_request.url.url_string", A_URL, url),
        ),
        **common,
        unmapped=log.rest(),
    )
