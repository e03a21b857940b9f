"""Whose logs come in by which way, and what their topics are called."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headgate.cli import main
from infra.config.settings import load
from infra.errors import Usage
from infra.kafka.client import source_of, tenant_of, topic_of


@pytest.mark.parametrize(
    ("topic", "source", "tenant"),
    [
        ("logs.sshd", "sshd", None),
        ("logs.zeek.conn", "zeek:conn", None),
        ("logs.tenant-acme.sshd", "sshd", "acme"),
        ("logs.tenant-acme.zeek.conn", "zeek:conn", "acme"),
        ("logs.tenant-acme", "tenant-acme", None),
        ("logs.tenant-Acme.sshd", "tenant-Acme:sshd", None),
        ("logs.tenant-.sshd", "tenant-:sshd", None),
        ("logs.sshd.tenant-acme.x", "sshd:tenant-acme.x", None),
    ],
)
def test_a_topic_says_source_and_tenant(topic: str, source: str, tenant: str | None) -> None:
    kafka = load().kafka
    assert source_of(topic, kafka) == source
    assert tenant_of(topic, kafka) == tenant


def test_ports_and_keys_write_the_topics_of_their_tenant(tmp_path: Path) -> None:
    listen = {
        "syslog": [
            {"protocol": "udp", "port": 0, "tenant": "acme"},
            {"protocol": "tcp", "port": 0},
        ],
        "routes": [{"source": "sshd", "program": "sshd"}],
        "otlp": {
            "http_port": 0,
            "keys": [{"name": "a", "token_file": tmp_path / "t", "tenant": "globex"}],
        },
    }
    settings = load(listen=listen, tenants=["acme", "globex"])
    topics = [topic_of(feed, settings.kafka) for feed in settings.listen.feeds]
    assert topics == [
        "logs.tenant-acme.syslog", "logs.tenant-acme.sshd", "logs.syslog", "logs.sshd",
        "logs.tenant-globex.json",
    ]  # fmt: skip
    assert settings.listen.sources == ("syslog", "sshd", "json")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"folders": {"f": {"paths": ["/x"], "source": "sshd", "tenant": "acmee"}}},
         "folders.f: no tenant 'acmee'; list it in tenants"),
        ({"listen": {"syslog": [{"protocol": "udp", "port": 0, "tenant": "acmee"}]}},
         "listen: no tenant 'acmee'"),
        ({"tenants": ["Acme"]}, "'Acme': small letters, digits and -"),
        ({"sources": {"azure_audit": {"accounts": {"6F1C-AB": "acme", "6f1c-ab": "acme"}}}},
         "accounts: '6F1C-AB' and '6f1c-ab' are one account; keep one"),
        ({"tenants": ["a.b"]}, "'a.b': small letters"),
    ],
)  # fmt: skip
def test_a_tenant_that_is_none_is_named(given: dict[str, Any], said: str) -> None:
    with pytest.raises(Usage, match=said):
        load(**{"tenants": ["acme"], **given})


def test_a_forwarder_of_a_tenant_may_write_its_topics_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "headgate.toml"
    config.write_text('tenants = ["acme"]')
    # Not by `--config`, which would stay in the environment.
    monkeypatch.setenv("HEADGATE_CONFIG", str(config))
    asked = ["kafka", "acls", "--user", "forwarder=f", "--tenant"]
    assert main([*asked, "acme", "--source", "zeek:dns", "--output", "json"]) == 0
    (grant,) = json.loads(capsys.readouterr().out)
    assert (grant["name"], grant["operation"]) == ("logs.tenant-acme.zeek.dns", "Write")
    assert main([*asked, "acme"]) == 2
    assert "name its sources as well" in capsys.readouterr().err
    assert main([*asked, "acmee", "--source", "sshd"]) == 2
    assert "no such tenant" in capsys.readouterr().err
