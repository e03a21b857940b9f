"""Signing in with an identity provider: OpenID Connect's code flow with PKCE, state and nonce.

The provider is asked when somebody signs in, never at the start: without it all else goes on.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from api.people import Person
from infra.config.secrets import of_file
from infra.config.settings import OidcSettings
from infra.errors import Fatal, Retryable

if TYPE_CHECKING:
    from authlib.integrations.requests_client import OAuth2Session

_SECONDS, _BYTES = 10.0, 2 << 20
"""What one sign-in may take of the provider's time, and of its bytes."""
_METADATA_SECONDS = 3600.0
_KEYS_SECONDS = 30.0
"""Keys are asked for again for a token of an unknown one, at most so often."""
_LEEWAY = 60
"""Seconds that the provider's clock may differ from ours."""
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512",
               "EdDSA")  # fmt: skip
"""Signatures that only the provider can make; `none` and those with a shared secret are not."""


class ProviderFailed(Retryable):
    """The identity provider is away, or does not do what OpenID Connect says."""


class SignInRefused(Exception):
    """The provider, or what it says, does not let somebody in; the text is for them."""


@dataclass(frozen=True)
class SignIn:
    """A sign-in under way: where the browser goes, and what must come back."""

    url: str
    state: str
    nonce: str
    verifier: str


class Provider:
    """The identity provider of the settings."""

    def __init__(self, oidc: OidcSettings) -> None:
        self._oidc = oidc
        self._lock = threading.Lock()
        self._metadata: tuple[float, dict[str, Any]] | None = None
        self._keys: tuple[float, dict[str, Any]] | None = None
        self._away_until = 0.0
        # A secret that cannot be had is said at the start; it is read anew at each sign-in.
        self._secret()

    def begin(self, back: str) -> SignIn:
        """Begin a sign-in that comes back to the address `back`. Raises `ProviderFailed`."""
        metadata = self._discovered()
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        with self._session(redirect_uri=back) as session:
            url, _ = session.create_authorization_url(
                metadata["authorization_endpoint"],
                state=state,
                nonce=nonce,
                code_verifier=verifier,
            )
        return SignIn(str(url), state, nonce, verifier)

    def finish(self, code: str, back: str, nonce: str, verifier: str) -> Person:
        """Who signed in. Raises `SignInRefused`, or `ProviderFailed` where it is away."""
        from authlib.common.errors import AuthlibBaseError

        metadata = self._discovered()
        with self._session(redirect_uri=back) as session:
            try:
                token = _asked(
                    session.fetch_token,
                    metadata["token_endpoint"],
                    code=code,
                    code_verifier=verifier,
                )
            except AuthlibBaseError as error:
                raise SignInRefused(f"the provider took the sign-in back ({error.error})") from None
        claims = self._claims(str(token.get("id_token") or ""), self._oidc.client_id, fresh=True)
        if not _same(claims.get("nonce"), nonce):
            raise SignInRefused("the provider's answer belongs to another sign-in")
        self._require_for_us(claims, str(token.get("access_token") or ""))
        endpoint = metadata.get("userinfo_endpoint")
        if endpoint and _value(claims, self._oidc.roles_claim) is None:
            # Many providers put groups there alone.
            with self._session(token=token) as session:
                more = _asked(session.get, endpoint).json()
            if not isinstance(more, dict) or more.get("sub") != claims["sub"]:
                raise ProviderFailed(f"{endpoint} tells of somebody else than its ID token")
            # The ID token is signed, the other answer is not: where both say something, the former
            # counts.
            claims = more | claims
        return self._person(claims)

    def bearer(self, token: str) -> Person | None:
        """Whose access token it is; None when it is none of the provider's for our audience."""
        # What is no JWT costs nothing, least of all a question to the provider.
        if self._oidc.audience is None or token.count(".") != 2:
            return None
        # Else each made-up token would hold a thread for as long as the provider is away.
        if time.monotonic() < self._away_until:
            return None
        try:
            return self._person(self._claims(token, self._oidc.audience, fresh=False))
        except SignInRefused:
            return None
        except ProviderFailed:
            self._away_until = time.monotonic() + _KEYS_SECONDS
            return None

    def end_url(self, back: str) -> str | None:
        """Where the provider's own session is ended (RP-Initiated Logout); None: nowhere."""
        from authlib.common.urls import add_params_to_uri

        endpoint = self._discovered().get("end_session_endpoint")
        if not endpoint:
            return None
        names = {"client_id": self._oidc.client_id, "post_logout_redirect_uri": back}
        return str(add_params_to_uri(endpoint, names))

    def is_issuer(self, issuer: str) -> bool:
        """Whether an answer names this provider (RFC 9207)."""
        return issuer == self._oidc.issuer

    def _discovered(self) -> dict[str, Any]:
        """The provider's metadata, at most an hour old (OpenID Connect Discovery)."""
        with self._lock:
            kept = self._metadata
        if kept is not None and time.monotonic() - kept[0] < _METADATA_SECONDS:
            return kept[1]
        address = f"{self._oidc.issuer.rstrip('/')}/.well-known/openid-configuration"
        metadata = self._document(address)
        # Another issuer could hand us to a provider that signs for anybody.
        if metadata.get("issuer") != self._oidc.issuer:
            raise ProviderFailed(
                f"{address} is of issuer '{metadata.get('issuer')}', and api.oidc.issuer is "
                f"'{self._oidc.issuer}'; write it just so"
            )
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
            if not isinstance(metadata.get(name), str):
                raise ProviderFailed(f"{address} has no {name}")
        with self._lock:
            self._metadata = (time.monotonic(), metadata)
        return metadata

    def _key_set(self, fresh: bool) -> dict[str, Any]:
        with self._lock:
            kept = self._keys
        if kept is not None and not fresh:
            return kept[1]
        keys = self._document(self._discovered()["jwks_uri"])
        with self._lock:
            self._keys = (time.monotonic(), keys)
        return keys

    def _may_ask_for_keys(self) -> bool:
        with self._lock:
            return self._keys is None or time.monotonic() - self._keys[0] > _KEYS_SECONDS

    def _claims(self, token: str, audience: str, *, fresh: bool) -> dict[str, Any]:
        """The claims of a token that the provider signed for this audience and that is in force.

        `fresh`: its keys may be asked for again however lately that was.
        """
        from joserfc import jwt
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet
        from joserfc.jwt import JWTClaimsRegistry

        offered = self._discovered().get("id_token_signing_alg_values_supported") or ["RS256"]
        algorithms = [name for name in offered if name in _ALGORITHMS]
        registry = JWTClaimsRegistry(
            leeway=_LEEWAY,
            iss={"essential": True, "value": self._oidc.issuer},
            aud={"essential": True, "value": audience},
            exp={"essential": True},
            sub={"essential": True},
        )

        def decoded(again: bool) -> dict[str, Any]:
            keys = KeySet.import_key_set(self._key_set(again))  # type: ignore[arg-type]  # JSON
            return jwt.decode(token, keys, algorithms=algorithms).claims

        try:
            try:
                claims = decoded(False)
            except (JoseError, ValueError):
                # The provider changed its keys, or the signature is none.
                if not (fresh or self._may_ask_for_keys()):
                    raise
                claims = decoded(True)
            registry.validate(claims)
        except (JoseError, ValueError) as error:
            # Its class alone: the text may hold what an outsider wrote.
            raise SignInRefused(
                f"the provider's token is not good ({type(error).__name__}); sign in again, and "
                "compare the clocks if it stays so"
            ) from None
        return claims

    def _require_for_us(self, claims: Mapping[str, Any], access_token: str) -> None:
        """Raises `SignInRefused` unless party and access token are those of this sign-in."""
        from authlib.oidc.core import CodeIDToken
        from joserfc.errors import JoseError

        about = {"client_id": self._oidc.client_id, "access_token": access_token}
        try:
            CodeIDToken(dict(claims), {"alg": "RS256"}, {}, about).validate_azp()
        except JoseError:
            raise SignInRefused("the provider's answer is for another client") from None

    def _person(self, claims: Mapping[str, Any]) -> Person:
        given = _value(claims, self._oidc.roles_claim)
        groups = given if isinstance(given, list) else [] if given is None else [given]
        name = claims.get(self._oidc.user_claim) or claims["sub"]
        return Person(f"oidc:{name}"[:120], str(claims["sub"]), tuple(map(str, groups)))

    def _session(self, **options: Any) -> OAuth2Session:
        from authlib.integrations.requests_client import OAuth2Session

        from alerts.feeds.bounded_session import BoundedAdapter

        secret = self._secret()
        session = OAuth2Session(
            self._oidc.client_id,
            secret,
            token_endpoint_auth_method="none" if secret is None else "client_secret_basic",
            scope=" ".join(self._oidc.scopes),
            code_challenge_method="S256",
            **options,
        )
        adapter = BoundedAdapter(_SECONDS, _BYTES)
        session.mount("https://", adapter)
        session.mount("http://", adapter)
        if self._oidc.ca_file is not None:
            session.verify = str(self._oidc.ca_file)
        return session

    def _document(self, address: str) -> dict[str, Any]:
        with self._session() as session:
            answered = _asked(session.get, address, withhold_token=True)
            if answered.status_code != 200:
                raise ProviderFailed(f"{address} answers {answered.status_code}")
            try:
                document = answered.json()
            except ValueError:
                document = None
        if not isinstance(document, dict):
            raise ProviderFailed(f"{address} is no JSON object")
        return document

    def _secret(self) -> str | None:
        if self._oidc.secret_file is not None:
            return of_file(self._oidc.secret_file, "api.oidc.secret_file")
        if self._oidc.secret_env is None:
            return None
        secret = os.environ.get(self._oidc.secret_env)
        if not secret:
            name = self._oidc.secret_env
            raise Fatal(f"api.oidc.secret_env: environment variable {name} is not set")
        return secret


def _asked(ask: Any, *words: Any, **options: Any) -> Any:
    """What the provider answers; raises `ProviderFailed` where it does not."""
    import requests

    try:
        return ask(*words, **options)
    except requests.RequestException as error:
        where = words[0] if words else "the identity provider"
        raise ProviderFailed(f"{where} does not answer ({type(error).__name__})") from None


def _same(given: object, wanted: str) -> bool:
    return isinstance(given, str) and secrets.compare_digest(given.encode(), wanted.encode())


def _value(claims: Mapping[str, Any], name: str) -> Any:
    """A claim by its name, or by the way to it: `realm_access.roles`."""
    if name in claims:
        return claims[name]
    value: Any = claims
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value
