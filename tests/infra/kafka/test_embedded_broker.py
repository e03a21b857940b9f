"""The broker beside the jobs: only where the settings mean it, and only on its own port."""

from __future__ import annotations

import argparse
import socket
from pathlib import Path
from typing import Any

import pytest

from infra.cli.doctor import build
from infra.config.settings import load
from infra.errors import Fatal, Usage
from infra.kafka.client import free_port
from infra.kafka.embedded_broker import EmbeddedBroker, broker_folder, embedded_port


def test_its_port_is_that_of_the_bootstrap_and_its_log_lies_in_the_home(tmp_path: Path) -> None:
    settings = load(home=tmp_path, kafka={"bootstrap": "localhost:9192"})
    assert embedded_port(settings) == 9192
    assert broker_folder(settings) == tmp_path / "kafka"
    assert not broker_folder(settings).exists()


@pytest.mark.parametrize(
    ("kafka", "said"),
    [
        ({"bootstrap": "kafka1.example.org:9092"}, "kafka.bootstrap is kafka1"),
        ({"bootstrap": "127.0.0.1:9092,127.0.0.1:9093"}, "leave out --broker embedded"),
        ({"bootstrap": "10.0.0.1:9092"}, "leave out --broker embedded"),
        ({"protocol": "SSL", "ca_file": "/etc/ca.pem"}, "kafka.protocol is SSL"),
    ],
)
def test_settings_that_mean_another_broker_are_refused(
    tmp_path: Path, kafka: dict[str, Any], said: str
) -> None:
    with pytest.raises(Usage, match=said):
        EmbeddedBroker(load(home=tmp_path, kafka=kafka), print)


def test_a_port_that_is_taken_is_said_before_anything_is_made(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        settings = load(home=tmp_path, kafka={"bootstrap": f"127.0.0.1:{port}"})
        with (
            pytest.raises(Fatal, match=f"port {port}, wanted for the embedded broker, is taken"),
            EmbeddedBroker(settings, print),
        ):
            raise AssertionError("it started")
    assert not broker_folder(settings).exists()


def test_a_folder_that_was_made_for_another_port_is_named(tmp_path: Path) -> None:
    settings = load(home=tmp_path, kafka={"bootstrap": f"127.0.0.1:{free_port()}"})
    folder = broker_folder(settings)
    folder.mkdir()
    (folder / "server.properties").write_text("listeners=PLAINTEXT://127.0.0.1:1,CONTROLLER://x\n")
    with pytest.raises(Usage, match="was made for another port"):
        embedded_port(settings)


def test_up_takes_it_as_an_option_and_no_other_broker() -> None:
    parser = argparse.ArgumentParser(exit_on_error=False)
    build(parser.add_subparsers())
    assert parser.parse_args(["up"]).broker is None
    assert parser.parse_args(["up", "--broker", "embedded"]).broker == "embedded"
