"""An identity provider in a process of its own: `python -m tests.api.provider PORT`.

It is `oidc-provider-mock`, and wants PKCE with S256; `/sign` signs the claims that it is sent,
`/rotate` changes its key.
"""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx

from infra.kafka.client import free_port

SECRET = "the-secret-of-the-console"


def application() -> Any:
    import flask
    import oidc_provider_mock
    from authlib import jose
    from oidc_provider_mock._storage import User, storage

    people = {"ann": ["soc", "everybody"], "bob": ["everybody"]}
    made = oidc_provider_mock.app(
        user_claims=[
            User(sub=f"id-of-{name}", claims={"preferred_username": name, "groups": groups})
            for name, groups in people.items()
        ]
    )
    challenges: dict[str, str] = {}

    @made.before_request
    def require_verifier() -> Any:
        if flask.request.path != "/oauth2/token":
            return None
        form = flask.request.form
        verifier = form.get("code_verifier", "").encode()
        digest = base64.urlsafe_b64encode(hashlib.sha256(verifier).digest()).rstrip(b"=").decode()
        is_known = flask.request.authorization is not None
        if not is_known or flask.request.authorization.password != SECRET:
            return {"error": "invalid_client"}, 401
        if challenges.pop(form.get("code", ""), None) != digest:
            return {"error": "invalid_grant"}, 400
        return None

    @made.after_request
    def keep_challenge(response: Any) -> Any:
        code = parse_qs(urlsplit(response.headers.get("Location", "")).query).get("code")
        if code and flask.request.args.get("code_challenge_method") == "S256":
            challenges[code[0]] = flask.request.args["code_challenge"]
        return response

    @made.post("/sign")
    def sign() -> Any:
        header = {"alg": "RS256", "kid": storage.jwk.thumbprint()}
        return jose.jwt.encode(header, flask.request.json, storage.jwk)

    @made.post("/rotate")
    def rotate() -> Any:
        storage.jwk = jose.RSAKey.generate_key(is_private=True)
        return ""

    return made


@contextmanager
def provider() -> Iterator[str]:
    """Its issuer, while it runs."""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", __spec__.name, str(port)])
    try:
        issuer, end = f"http://127.0.0.1:{port}", time.monotonic() + 60
        while True:
            try:
                httpx.get(issuer)
                break
            except httpx.TransportError:
                assert process.poll() is None, "the provider ended"
                assert time.monotonic() < end, "the provider does not answer"
                time.sleep(0.1)
        yield issuer
    finally:
        process.terminate()
        process.wait(30)


if __name__ == "__main__":
    import uvicorn

    os.environ["AUTHLIB_INSECURE_TRANSPORT"] = "1"
    uvicorn.run(application(), interface="wsgi", port=int(sys.argv[1]), log_level="error")
