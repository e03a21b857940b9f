"""Who may call over Flight SQL, and over which connection."""

from __future__ import annotations

import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import adbc_driver_flightsql.dbapi as adbc
import adbc_driver_manager
import pytest

from api.app import create_app
from api.flight.sign_in import PASSWORD_SESSION_SECONDS, PasswordSessions
from api.serving import tls_findings
from infra.config.settings import load
from infra.errors import Fatal, Usage
from tests.api.flight.flight_desk import FlightDesk, flight_over
from tests.api.test_serving import TOKEN, home
from tests.infra.authority import Authority

Refusal = adbc_driver_manager.Error


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlightDesk]:
    running = FlightDesk(tmp_path_factory.mktemp("flight"), requests_per_minute=30)
    yield running
    running.close()


def asked(desk: FlightDesk, **options: str) -> object:
    with desk.adbc(**options) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT 7 AS x")
        return cursor.fetchone()[0]


def test_a_key_is_the_password_of_user_token(desk: FlightDesk) -> None:
    key = desk.key("basic")
    assert asked(desk, username="token", password=key) == 7
    assert desk.audited()[-1]["who"] == "basic"


def test_a_person_signs_in_with_a_password_until_it_changes(desk: FlightDesk) -> None:
    credentials = desk.access.credentials
    credentials.put_user("ann", "viewer", "a long password of ann")
    options = {"username": "ann", "password": "a long password of ann"}
    assert asked(desk, **options) == 7
    assert desk.audited()[-1]["who"] == "ann"
    with desk.adbc(**options) as connection:
        credentials.put_user("ann", "viewer", "another long password")
        with pytest.raises(Refusal, match="UNAUTHENTICATED"):
            connection.adbc_get_table_types()


def test_strangers_are_told_how_to_sign_in(desk: FlightDesk) -> None:
    for options in (
        {"username": "token", "password": "wrong"},
        {"username": "basic", "password": desk.key("other")},
        {"adbc.flight.sql.authorization_header": "Bearer wrong"},
        {"adbc.flight.sql.authorization_header": "Basic !!"},
        {"adbc.flight.sql.rpc.call_header.x": "y"},
    ):
        with pytest.raises(Refusal, match=r"UNAUTHENTICATED.*Authorization: Bearer <token>"):
            asked(desk, **options)


def test_a_key_that_ended_is_refused_at_once(desk: FlightDesk) -> None:
    token = desk.key("ends")
    assert desk.rows("SELECT 7 AS x", token) == [{"x": 7}]
    desk.access.credentials.remove_key("ends")
    with pytest.raises(Refusal, match="UNAUTHENTICATED"):
        desk.rows("SELECT 7 AS x", token)


def test_calls_count_as_requests_of_the_key(desk: FlightDesk) -> None:
    token = desk.key("hasty")
    with pytest.raises(Refusal, match=r"key 'hasty' may make 30 requests a minute; again in \d"):
        [desk.rows("SELECT 7 AS x", token) for _ in range(31)]


def test_a_session_of_a_password_ends_after_its_time(desk: FlightDesk) -> None:
    clock = [0.0]
    sessions = PasswordSessions(desk.access, lambda: clock[0])
    caller = desk.access.named("api")
    assert caller is not None
    token = sessions.begin(caller)
    clock[0] = PASSWORD_SESSION_SECONDS - 1
    assert sessions.caller(token) == caller
    assert sessions.caller("other") is None
    clock[0] = PASSWORD_SESSION_SECONDS
    assert sessions.caller(token) is None


def test_tls_has_the_certificate_of_the_api(tmp_path: Path) -> None:
    settings = home(tmp_path, flight_port="0")
    app = create_app(settings)
    door = flight_over(app)
    try:
        options = {
            "adbc.flight.sql.authorization_header": f"Bearer {TOKEN}",
            "adbc.flight.sql.client_option.tls_root_certs": (
                tmp_path / "authority.pem"
            ).read_text(),
        }
        with (
            adbc.connect(f"grpc+tls://127.0.0.1:{door.port}", db_kwargs=options) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute("SELECT 7 AS x")
            assert cursor.fetchone() == (7,)
        (found, _) = tls_findings(settings)
        assert found.found == "grpc+tls://127.0.0.1:0"
    finally:
        door.close()
        app.state.services.close()


@pytest.mark.full
def test_a_renewed_certificate_is_shown_without_a_restart(tmp_path: Path) -> None:
    settings = home(tmp_path, flight_port="0")
    app = create_app(settings)
    door = flight_over(app)
    try:
        shown = ssl.get_server_certificate(("127.0.0.1", door.port))
        file = settings.api.certificate_file
        assert file is not None
        renewed = Authority.made(tmp_path, "other").certificate(tmp_path, "renewed")
        file.write_bytes(renewed.read_bytes())
        options = {
            "adbc.flight.sql.authorization_header": f"Bearer {TOKEN}",
            "adbc.flight.sql.client_option.tls_root_certs": (tmp_path / "other.pem").read_text(),
        }
        time.sleep(1.1)  # the files are looked at once a second
        with (
            adbc.connect(f"grpc+tls://127.0.0.1:{door.port}", db_kwargs=options) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute("SELECT 7 AS x")
            assert cursor.fetchone() == (7,)
        assert ssl.get_server_certificate(("127.0.0.1", door.port)) != shown
    finally:
        door.close()
        app.state.services.close()


def test_calls_are_counted_by_what_they_ended_with(tmp_path: Path) -> None:
    desk = FlightDesk(tmp_path)
    try:
        assert desk.rows("SELECT 7 AS x") == [{"x": 7}]
        for statement, token in (("SELECT nothing", None), ("SELECT 7", "wrong")):
            with pytest.raises(Refusal):
                desk.rows(statement, token)
        registry = desk.app.state.services.meters.registry
        calls = {
            (sample.labels["method"], sample.labels["status"]): sample.value
            for metric in registry.collect()
            for sample in metric.samples
            if sample.name == "headgate_flight_calls_total"
        }
    finally:
        desk.close()
    assert calls[("get_flight_info", "ok")] >= 1
    assert calls[("do_get", "ok")] >= 1
    assert {status for _, status in calls} == {"ok", "refused", "unauthenticated"}


def test_what_cannot_be_served_is_said_before_the_api_is(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        app = create_app(load(home=tmp_path, api={"flight_port": port}))
        with pytest.raises(Usage, match=rf"cannot listen on grpc\+tcp://127.0.0.1:{port}"):
            flight_over(app)
    (tmp_path / "over").mkdir()
    over = create_app(home(tmp_path / "over", ends=-0.5, flight_port="0"))
    with pytest.raises(Fatal, match="renew it"):
        flight_over(over)


@pytest.mark.full
def test_the_api_serves_it_beside_itself_and_says_where(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "headgate.cli", "--home", str(tmp_path), "api", "--port", "0"]
    environment = os.environ | {"HEADGATE_API__FLIGHT_PORT": "0"}
    api = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert api.stdout is not None
        api.stdout.readline()
        told = re.fullmatch(r"Flight SQL on grpc\+tcp://(127.0.0.1:\d+)\n", api.stdout.readline())
        assert told is not None
        token = (tmp_path / "api.token").read_text().strip()
        options = {"adbc.flight.sql.authorization_header": f"Bearer {token}"}
        with (
            adbc.connect(f"grpc://{told[1]}", db_kwargs=options) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute("SELECT 7 AS x")
            assert cursor.fetchone() == (7,)
        api.send_signal(signal.SIGTERM)
        assert api.wait(60) == 0
    finally:
        api.kill()
        api.wait()
