"""The API over TLS: cookies and answers say so, and who could listen in is told."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from api.serving import base_url, tls_findings
from infra.config.settings import Settings, load
from infra.errors import Fatal, Usage
from tests.api.server import served
from tests.infra.authority import Authority

TOKEN = "the-token-of-the-api"


def home(folder: Path, ends: float = 30, **api: str) -> Settings:
    file = Authority.made(folder, "authority").certificate(folder, "server", ends=ends)
    file.chmod(0o600)
    return load(home=folder, api={"certificate_file": str(file), "token": TOKEN} | api)


def test_https_has_secure_cookies_and_browsers_keep_to_it(tmp_path: Path) -> None:
    settings = home(tmp_path)
    with (
        served(settings) as url,
        httpx.Client(base_url=url, verify=str(tmp_path / "authority.pem")) as client,
    ):
        assert url.startswith("https://")
        signed = client.post("/login", data={"key": TOKEN, "next": "/"})
        refused = client.get("/api/v1/alerts")
    assert signed.status_code == 303
    assert "; Secure" in signed.headers["set-cookie"]
    assert refused.status_code == 401
    assert refused.headers["strict-transport-security"] == "max-age=31536000"


def test_http_asks_no_browser_for_https(tmp_path: Path) -> None:
    with served(load(home=tmp_path)) as url:
        answered = httpx.get(f"{url}/healthz")
    assert "strict-transport-security" not in answered.headers


def test_a_certificate_that_does_not_serve_ends_the_start(tmp_path: Path) -> None:
    settings = home(tmp_path, ends=-0.5)
    with pytest.raises(Fatal, match=r"ended .*; renew it"), served(settings):
        pass


def test_the_doctor_tells_of_a_certificate_s_end_and_of_what_is_in_clear(tmp_path: Path) -> None:
    (good,) = tls_findings(home(tmp_path))
    assert good.remedy is None
    (soon,) = tls_findings(home(tmp_path, ends=3))
    assert soon.remedy is not None
    assert "renew" in soon.remedy
    (over,) = tls_findings(home(tmp_path, ends=-0.5))
    assert over.found == "not fit"
    (open_,) = tls_findings(load(home=tmp_path, api={"host": "0.0.0.0"}))
    assert "set api.certificate_file" in str(open_.remedy)
    assert list(tls_findings(load(home=tmp_path, api={"host": "::1"}))) == []


def test_a_key_alone_is_refused_and_the_address_says_the_scheme(tmp_path: Path) -> None:
    with pytest.raises(Usage, match="key_file goes with certificate_file"):
        load(home=tmp_path, api={"key_file": "key.pem"})
    assert base_url(load(home=tmp_path, api={"host": "::1"})) == "http://[::1]:8765"
    assert base_url(home(tmp_path), port=1) == "https://127.0.0.1:1"
