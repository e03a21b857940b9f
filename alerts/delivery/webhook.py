"""One delivery of an alert to a webhook: signed, to an address that was looked at first.

The name of the hook is resolved once, each address is judged, and the connection
goes to the address that was judged: a name that changes its mind between the look
and the call (DNS rebinding) gains nothing. Redirects are not followed.

Signature: `Headgate-Signature: t=SECONDS,v1=HEX`, HEX being HMAC-SHA256 under the
hook's secret over `SECONDS.BODY`. Receivers refuse a time that is minutes old.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import ipaddress
import socket
import ssl
import threading
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from alerts.delivery.webhook_forms import check_templates, webhook_body
from infra.config.secrets import either
from infra.config.settings import WebhookSettings
from infra.config.webhook_section import ADDRESS_IS_SECRET
from infra.errors import Usage

AGENT = "headgate-webhook/1"

_PAGERDUTY = "https://events.pagerduty.com/v2/enqueue"
_ANSWER_BYTES = 65536
_BEARER = ("thehive", "iris")
"""Forms whose secret goes with each request as a bearer token."""

_CLOUDS_OWN = frozenset(map(ipaddress.ip_address, ("168.63.129.16", "192.0.0.192")))
"""Look public, and are answered inside a cloud: Azure's wire server, Oracle's metadata."""


class Undelivered(Exception):
    """The hook did not take it; the text says why."""


@dataclass(frozen=True)
class _Target:
    """Where a hook's URL points to."""

    scheme: str
    host: str
    port: int
    path: str


def target_of(hook: WebhookSettings) -> _Target:
    """The parts of the hook's URL; raises `Usage` for one that is not to be called."""
    is_secret = hook.form in ADDRESS_IS_SECRET
    url = secret_of(hook).decode() if is_secret else hook.url or _PAGERDUTY
    where = f"webhook {hook.name}: url {'*****' if is_secret else repr(url)}"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        # The reason may quote the address.
        raise Usage(f"{where}: {'not an address' if is_secret else error}") from None
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise Usage(f"{where}: write https://HOST/PATH")
    # A password in a URL ends up in logs and error messages.
    if parts.username is not None or parts.password is not None:
        raise Usage(f"{where}: no user and password in it; the signature says who calls")
    if parts.scheme == "http" and not hook.allow_private:
        raise Usage(f"{where}: without TLS only where allow_private is set")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not path.isascii() or not path.isprintable() or " " in path:
        raise Usage(f"{where}: its path has to be percent-encoded")
    return _Target(
        parts.scheme, parts.hostname, port or {"https": 443, "http": 80}[parts.scheme], path
    )


def secret_of(hook: WebhookSettings) -> bytes:
    """The secret that signs; raises `Usage` when the variable that holds it is not set."""
    what = f"webhook {hook.name}: secret"
    return (either(hook.secret, hook.secret_file, what, hook.secret_env) or "").encode()


def check(hook: WebhookSettings) -> None:
    """Raises `Usage` for a hook that cannot be called as it is set up."""
    target_of(hook)
    check_templates(hook)
    secret = secret_of(hook).decode()
    if hook.form in _BEARER and not (secret.isascii() and secret.isprintable()):
        raise Usage(f"webhook {hook.name}: its token has letters that no HTTP header may hold")


def signature(secret: bytes, seconds: int, body: bytes) -> str:
    """Value of the header `Headgate-Signature`."""
    # The time is signed with the body, so that an old delivery cannot be sent again as a new one.
    signed = hmac.new(secret, f"{seconds}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={seconds},v1={signed}"


def is_public(address: str) -> bool:
    """Whether an address is one of the open internet, also when it is wrapped in IPv6.

    What `ipaddress` calls global, but neither multicast nor reserved; 6to4 and NAT64 addresses are
    judged by the IPv4 address inside (RFC 3056, RFC 6052).
    """
    ip_address = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip_address, ipaddress.IPv6Address):
        inside = ip_address.ipv4_mapped or ip_address.sixtofour
        if inside is None and ip_address in ipaddress.ip_network("64:ff9b::/96"):
            inside = ipaddress.IPv4Address(int(ip_address) & 0xFFFFFFFF)
        if inside is not None:
            return is_public(str(inside))
        if ip_address.is_site_local:  # fec0::/10, deprecated (RFC 3879) and still routed inside
            return False
    if ip_address in _CLOUDS_OWN:
        return False
    return ip_address.is_global and not ip_address.is_multicast and not ip_address.is_reserved


def addresses(target: _Target, *, allow_private: bool) -> list[str]:
    """Addresses of the target that may be called; raises `Undelivered` when there is none."""
    try:
        getaddrinfo = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        # A host name that is no valid IDNA raises `UnicodeError`, which has no `strerror`.
        why = getattr(error, "strerror", None) or error
        raise Undelivered(f"{target.host}: no address ({why})") from None
    # Each once and in the resolver's order, which prefers what this machine can reach.
    known = list(dict.fromkeys(str(entry[4][0]) for entry in getaddrinfo))
    allowed = [address for address in known if allow_private or is_public(address)]
    if not allowed:
        raise Undelivered(f"{target.host} is {', '.join(known)}: private, and not allowed")
    return allowed


def post(
    hook: WebhookSettings, key: str, body: bytes, seconds: int, console_url: str | None = None
) -> None:
    """Send one revision (`key`: alert_id:revision) in the hook's form; returns when it took it.

    Taken is 2xx. `seconds`: time of the signature, since 1970. Raises `Undelivered`.
    """
    target = target_of(hook)
    secret = secret_of(hook)
    # Made late: a routing key must not lie in the queue's file.
    try:
        body = webhook_body(hook, secret.decode(), body, console_url)
    except Usage as error:
        # Its template is gone: what waits is kept, and goes once it is there again.
        raise Undelivered(str(error)) from None
    headers = {
        "Host": _authority(target),
        "Content-Type": "application/json",
        "User-Agent": AGENT,
    } | _proof(hook, secret, key, seconds, body)
    problem = ""
    # Two at most, say IPv6 and IPv4: each may take the whole timeout while others wait.
    for address in addresses(target, allow_private=hook.allow_private)[:2]:
        connection = _Connection(target, address, hook.timeout_seconds)
        # The socket's own timeout is for each piece: who answers byte by byte would never end.
        whole = threading.Timer(hook.timeout_seconds, connection.cut)
        whole.daemon = True
        whole.start()
        try:
            connection.request("POST", target.path, body, headers)
            response = connection.getresponse()
            status = response.status
            is_known = hook.form == "thehive" and status == 400 and _is_known(response)
            if connection.is_cut:
                raise TimeoutError(f"no whole answer within {hook.timeout_seconds:g} s")
        except (OSError, http.client.HTTPException) as error:
            problem = f"{address}: {type(error).__name__}: {error}"
            continue
        finally:
            whole.cancel()
            connection.close()
        if 200 <= status < 300 or is_known:
            return
        why = ": redirects are not followed" if 300 <= status < 400 else ""
        # An answer is an answer: another address is tried only where there was none.
        raise Undelivered(f"{target.host} answered {status}{why}")
    raise Undelivered(problem)


def _proof(
    hook: WebhookSettings, secret: bytes, key: str, seconds: int, body: bytes
) -> dict[str, str]:
    """The headers that say who calls."""
    if hook.form == "headgate":
        signed = signature(secret, seconds, body)
        return {"Headgate-Delivery": key, "Headgate-Signature": signed}
    if hook.form == "jira":
        account = base64.b64encode(f"{hook.user}:".encode() + secret).decode()
        return {"Accept": "application/json", "Authorization": f"Basic {account}"}
    return {"Authorization": f"Bearer {secret.decode()}"} if hook.form in _BEARER else {}


def _is_known(response: http.client.HTTPResponse) -> bool:
    """Whether TheHive has an alert of this sourceRef: an earlier try came through after all."""
    return b"already exist" in response.read(_ANSWER_BYTES)


def _authority(target: _Target) -> str:
    host = f"[{target.host}]" if ":" in target.host else target.host
    standard = {"https": 443, "http": 80}[target.scheme]
    return host if target.port == standard else f"{host}:{target.port}"


class _Connection(http.client.HTTPConnection):
    """A connection to one address, with TLS in the name of the host."""

    def __init__(self, target: _Target, address: str, timeout: float) -> None:
        super().__init__(target.host, target.port, timeout=timeout)
        self._address = address
        self._secure = target.scheme == "https"
        self.is_cut = False

    def cut(self) -> None:
        """End what is under way, from another thread."""
        self.is_cut = True
        if self.sock is not None:
            with suppress(OSError):
                # `close` alone would not wake a thread that is blocked in a read.
                self.sock.shutdown(socket.SHUT_RDWR)

    def connect(self) -> None:
        plain = socket.create_connection((self._address, self.port), self.timeout)
        self.sock = plain
        if self._secure:
            context = ssl.create_default_context()
            try:
                # To the judged address, but in the name of the host: the certificate is of the
                # name.
                self.sock = context.wrap_socket(plain, server_hostname=self.host)
            except OSError:
                plain.close()
                raise
