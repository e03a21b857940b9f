"""HTTP to servers of threat intelligence, within bounds of time and bytes.

`requests` alone waits and reads without end, and follows a redirect with the password in hand.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase, HTTPBasicAuth
from urllib3.exceptions import HTTPError

from infra.config.intelligence_section import IntelligenceServer
from infra.config.secrets import either
from infra.errors import Retryable, Usage

_SOCKET_SECONDS = 30.0
_CHUNK = 64 * 1024
_LONGEST_WAIT = 60.0
"""A server that wants to be left alone for longer is left alone until the next run."""
_MOST_WAITS = 5
_BUSY = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)


class ServerFailed(Retryable):
    """A server of threat intelligence did not give, or did not take, what it should."""


class ServerBusy(ServerFailed):
    """The server wants to be asked again only after `wait_seconds`."""

    def __init__(self, message: str, wait_seconds: float) -> None:
        super().__init__(message)
        self.wait_seconds = wait_seconds


class BoundedAdapter(HTTPAdapter):
    """Sends requests until time or bytes of the whole run are used up; waits where asked to."""

    def __init__(
        self, max_seconds: float, max_bytes: float, pause: Callable[[float], None] = time.sleep
    ) -> None:
        super().__init__()
        self._seconds = max_seconds
        self._end = time.monotonic() + max_seconds
        self._max_bytes = max_bytes
        self._pause = pause
        self.bytes_read = 0
        self.headers: dict[str, str] = {}
        """Headers of the newest answer, in lower case: `taxii2client` gives only its body."""

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        *args: Any,
        **options: Any,
    ) -> requests.Response:
        """Send one request and read the whole answer. Raises `ServerFailed`."""
        waits = 0
        while True:
            seconds = min(_SOCKET_SECONDS, self._left())
            # Streamed, so that the body is read here, piece by piece against the bounds.
            response: requests.Response = super().send(
                request, True, (seconds, seconds), *args, **options
            )
            self._read(response)
            self.headers = {name.lower(): value for name, value in response.headers.items()}
            if response.is_redirect:
                raise ServerFailed(f"{request.url} redirects elsewhere, which is not followed")
            if response.status_code not in _BUSY:
                return response
            waits += 1
            wait = _retry_after(response.headers.get("Retry-After"), waits)
            if waits > _MOST_WAITS or wait > min(_LONGEST_WAIT, self._left()):
                status = f"{response.status_code} {response.reason}"
                raise ServerBusy(f"it answers {status}: again in {wait:.0f} s", wait)
            self._pause(wait)

    def _left(self) -> float:
        """Seconds that are left."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise ServerFailed(f"not done within {self._seconds:g} s (max_seconds)")
        return left

    def _read(self, response: requests.Response) -> None:
        body = bytearray()
        try:
            # `read1` gives what has come: a server that sends byte by byte meets the time bound.
            while chunk := response.raw.read1(_CHUNK, decode_content=True):
                body += chunk
                self.bytes_read += len(chunk)
                if self.bytes_read > self._max_bytes:
                    most = self._max_bytes / 2**20
                    raise ServerFailed(f"more than {most:g} MB (max_megabytes)")
                self._left()
        except (HTTPError, OSError) as error:
            raise ServerFailed(f"the answer broke off ({type(error).__name__})") from None
        finally:
            response.close()
        response._content = bytes(body)
        response._content_consumed = True


class _Bearer(AuthBase):
    """A secret in the header `Authorization`, after the word of its scheme."""

    def __init__(self, value: str) -> None:
        self._value = value

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._value:
            request.headers["Authorization"] = self._value
        return request


def open_session(
    server: IntelligenceServer, user: str = "", scheme: str = "Bearer "
) -> tuple[requests.Session, BoundedAdapter]:
    """A session with a server that signs in with the secret of the settings.

    `user`: basic authentication; without, the secret follows `scheme`. Raises `Usage` or `Fatal`
    where the secret cannot be had.
    """
    adapter = BoundedAdapter(server.max_seconds, server.max_megabytes * 2**20)
    session = requests.Session()
    session.mount("https://", adapter)
    session.mount("http://", adapter)
    session.headers["User-Agent"] = "headgate-feeds/1"
    secret = _secret_of(server)
    # Never None: without an authentication `requests` would look for one in ~/.netrc.
    session.auth = HTTPBasicAuth(user, secret) if user else _Bearer(secret and scheme + secret)
    if server.ca_file is not None:
        session.verify = str(server.ca_file)
    return session, adapter


def _secret_of(server: IntelligenceServer) -> str:
    where = f"intelligence server {server.name}: secret"
    secret = either(server.secret, server.secret_file, where, server.secret_env) or ""
    if not secret.isascii() or not secret.isprintable():
        raise Usage(f"{where}: it has letters that no HTTP header may hold")
    return secret


def _retry_after(header: str | None, waits: int) -> float:
    """Seconds that a server wants to be left alone (RFC 9110, 10.2.3); else ever longer ones."""
    text = (header or "").strip()
    if text.isascii() and text.isdigit():
        return float(text[:9])
    try:
        until = parsedate_to_datetime(text)
        # Without a zone it is of UTC, and not of this machine's.
        until = until if until.tzinfo else until.replace(tzinfo=UTC)
        return max(0.0, (until - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError, IndexError):
        return 2.0**waits
