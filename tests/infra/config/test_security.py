"""Secrets stay unseen, files closed, and keys do what their role says."""

from __future__ import annotations

import json
import os
import pwd
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr
from pyspark.sql import SparkSession

from api.app import create_app
from api.auth import token_of
from infra.cli.doctor import open_paths
from infra.config.secrets import either, is_secret, of_file, without_secrets
from infra.config.settings import KafkaSettings, Settings, load
from infra.errors import Fatal, Usage
from infra.kafka.auth import QUOTED_PASSWORD, environment, hand_to_executors, java_security
from infra.process import subprocesses
from infra.process.os_user import acting_user
from infra.process.subprocesses import PlatformProcess
from infra.spark import secret_conf
from infra.spark.session import project_root

CANARY = "q7Zr-not-to-be-seen"


def secret(folder: Path, content: str = CANARY, mode: int = 0o600) -> Path:
    file = folder / f"secret-{len(list(folder.iterdir()))}"
    file.write_text(content)
    file.chmod(mode)
    return file


def test_a_secret_is_the_one_line_of_its_file(tmp_path: Path) -> None:
    assert of_file(secret(tmp_path, f"{CANARY}\n"), "kafka.password_file") == CANARY
    assert of_file(secret(tmp_path, " with spaces \r\n"), "x") == " with spaces "


def test_a_secret_comes_from_one_of_three_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = secret(tmp_path, "of the file\n")
    monkeypatch.setenv("OURS", "of the environment")
    monkeypatch.setenv("EMPTY", "")
    assert either(SecretStr("given"), None, "x.secret") == "given"
    assert either(None, file, "x.secret") == "of the file"
    assert either(None, None, "x.secret", "OURS") == "of the environment"
    assert either(None, None, "x.secret") is None
    with pytest.raises(Usage, match=r"x\.secret: environment variable EMPTY is not set"):
        either(None, None, "x.secret", "EMPTY")


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        (CANARY, 0o644, "others may read it; run chmod 600"),
        (CANARY, 0o620, "others may read it; run chmod 600"),
        ("\n", 0o600, "holds nothing"),
        (f"{CANARY}\nmore\n", 0o600, "holds several lines"),
    ],
)
def test_an_open_or_odd_file_is_refused_without_its_content(
    tmp_path: Path, content: str, mode: int, said: str
) -> None:
    with pytest.raises(Fatal) as refused:
        of_file(secret(tmp_path, content, mode), "kafka.password_file")
    assert said in str(refused.value)
    assert CANARY not in str(refused.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(Fatal, match=r"api.token_file = .*gone: cannot be read \(No such file"):
        of_file(tmp_path / "gone", "api.token_file")


@pytest.mark.parametrize(
    "text",
    [
        f'[kafka]\noptions = {{ "sasl.password" = "{CANARY}" }}',
        f'[kafka]\nuser = "u"\nprotocol = "PLAINTEXT"\npassword = "{CANARY}"',
        f'[kafka]\npassword = ["{CANARY}"]',
        f'[[webhooks]]\nname = "w"\nurl = "https://h/p"\nsecret = "{CANARY}"\nsecret_env = "X"',
        f'[sources.okta]\nformat = "avro"\nregistry = ["https://u:{CANARY}@registry"]',
        f'[api]\ntoken = "{CANARY}"\ntoken_file = "also"',
    ],
)
def test_what_is_wrong_with_a_setting_is_said_without_a_secret(tmp_path: Path, text: str) -> None:
    config = tmp_path / "headgate.toml"
    config.write_text(text)
    with pytest.raises(Usage) as refused:
        load(config)
    assert str(config) in str(refused.value)
    assert CANARY not in str(refused.value)


def test_the_command_settings_shows_all_but_secrets(tmp_path: Path) -> None:
    config = tmp_path / "headgate.toml"
    config.write_text(
        f"""
home = "{tmp_path}"
[kafka]
protocol = "SASL_SSL"
user = "kim"
password_file = "{secret(tmp_path)}"
[api]
token = "{CANARY}"
[sources.okta]
format = "avro"
registry = "https://kim:{CANARY}@registry:8081"
[spark]
conf = {{ "spark.hadoop.fs.s3a.secret.key" = "{CANARY}", "spark.executor.memory" = "2g" }}
[[webhooks]]
name = "pager"
url = "https://h/p"
secret = "{CANARY}"
"""
    )
    command = [sys.executable, "-m", "headgate.cli", "--config", str(config), "settings"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert CANARY not in done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert told["kafka"]["user"] == "kim"
    assert told["api"]["token"] == "*****"
    assert told["sources"]["okta"]["registry"] == "https://*****@registry:8081"
    assert told["spark"]["conf"] == {
        "spark.hadoop.fs.s3a.secret.key": "*****",
        "spark.executor.memory": "2g",
    }


def test_no_secret_setting_is_shown_in_any_form() -> None:
    shown = without_secrets(
        {"kafka": {"password": SecretStr(CANARY), "password_file": Path("/run/p")}}
    )
    assert shown == {"kafka": {"password": "*****", "password_file": Path("/run/p")}}
    kafka = {"user": "kim", "protocol": "SASL_SSL", "password": CANARY}
    assert CANARY not in repr(load(kafka=kafka))


@given(st.text(st.characters(blacklist_categories=("Cs",)), min_size=1))
def test_a_properties_file_gives_java_the_same_value(value: str) -> None:
    escaped = secret_conf._escaped(value)
    assert escaped.isascii()
    assert escaped.isprintable()
    assert " " not in escaped
    units = escaped.encode("ascii").decode("unicode_escape")  # \uXXXX as Java reads them
    assert units.encode("utf-16-be", "surrogatepass").decode("utf-16-be") == value


def test_secret_spark_settings_go_by_a_file_that_is_gone_afterwards(tmp_path: Path) -> None:
    seen, secret_ = secret_conf.split_secrets(
        {"spark.x.secret.key": CANARY, "spark.executor.cores": "2"}
    )
    assert seen == {"spark.executor.cores": "2"}
    with secret_conf.handed_over(secret_, tmp_path):
        (file,) = tmp_path.iterdir()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert file.read_text() == f"spark.x.secret.key={CANARY}\n"
        assert str(file) in os.environ["PYSPARK_SUBMIT_ARGS"]
        assert CANARY not in os.environ["PYSPARK_SUBMIT_ARGS"]
    assert list(tmp_path.iterdir()) == []
    assert "PYSPARK_SUBMIT_ARGS" not in os.environ


def test_sparks_rpc_asks_who_comes_and_its_pages_are_off(spark: SparkSession) -> None:
    conf = spark.sparkContext.getConf()
    assert conf.get("spark.authenticate") == "true"
    assert conf.get("spark.ui.enabled") == "false"
    assert conf.get("spark.driver.bindAddress") == "127.0.0.1"


def test_options_of_a_stream_name_the_password_and_do_not_hold_it() -> None:
    kafka = KafkaSettings(protocol="SASL_SSL", user='k"im', password=SecretStr(f'{CANARY}"\\'))
    assert CANARY not in json.dumps(java_security(kafka))
    assert java_security(kafka)["sasl.jaas.config"].endswith(
        f'ScramLoginModule required username="k\\"im" password="${{env:{QUOTED_PASSWORD}}}";'
    )
    assert environment(kafka) == {QUOTED_PASSWORD: f'{CANARY}\\"\\\\'}


def on(master: str) -> Settings:
    kafka = {"protocol": "SASL_SSL", "user": "kim", "password": CANARY}
    return load(kafka=kafka, spark={"master": master})


def test_executors_get_the_password_where_nothing_shows_it_on_the_way() -> None:
    encrypted = {"spark.network.crypto.enabled": "true"}
    (given,) = hand_to_executors(on("spark://m:7077"), encrypted).items()
    assert given == (f"spark.executorEnv.{QUOTED_PASSWORD}", CANARY)
    assert is_secret(given[0])
    for master in ("local[2]", "k8s://https://k:443"):  # ours, and a Secret in the pod template
        assert hand_to_executors(on(master), encrypted) == {}
    with pytest.raises(Fatal, match=r"in clear; set spark\.secret_file") as open_:
        hand_to_executors(on("spark://m:7077"), {})
    with pytest.raises(Fatal, match=r"into the logs of every executor.*certificate_file") as kept:
        hand_to_executors(on("yarn"), encrypted)
    assert CANARY not in f"{open_.value} {kept.value}"


def test_the_image_s_entrypoint_quotes_as_we_do(tmp_path: Path) -> None:
    password = f'{CANARY} "a\\b" $HOME `id` & \\'
    java_ = tmp_path / "java"
    java_.write_text(f'#!/bin/sh\necho "$HEADGATE_KAFKA__PASSWORD"; printenv {QUOTED_PASSWORD}\n')
    java_.chmod(0o700)
    names = ("MEMORY", "CORES", "ID", "POD_IP", "POD_NAME")
    needed = {f"SPARK_EXECUTOR_{name}": "x" for name in names} | dict.fromkeys(
        ("SPARK_HOME", "SPARK_DRIVER_URL", "SPARK_APPLICATION_ID", "SPARK_RESOURCE_PROFILE_ID"), "x"
    )
    path = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HEADGATE_KAFKA__PASSWORD": password}
    said = subprocess.run(
        [project_root() / "infra/deploy/image/entrypoint.sh", "executor"],
        env=path | needed,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    kafka = KafkaSettings(protocol="SASL_SSL", user="kim", password=SecretStr(password))
    assert said == f"\n{environment(kafka)[QUOTED_PASSWORD]}\n"


def test_java_gets_the_same_files_under_its_own_names(tmp_path: Path) -> None:
    ca, own = tmp_path / "ca.pem", tmp_path / "own.pem"
    assert java_security(KafkaSettings(protocol="SSL", ca_file=ca, certificate_file=own)) == {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(ca),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(own),
    }
    assert java_security(KafkaSettings()) == {}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sasl.password", True),
        ("ssl.key.pem", True),
        ("sasl.jaas.config", True),
        ("spark.hadoop.fs.s3a.access.key", True),
        ("security.protocol", False),
        ("spark.executor.memory", False),
        ("ssl.ca.location", False),
    ],
)
def test_names_of_secrets_are_known(name: str, expected: bool) -> None:
    assert is_secret(name) is expected


def test_audit_names_the_account_and_not_what_the_environment_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = pwd.getpwuid(os.getuid()).pw_name
    monkeypatch.setenv("LOGNAME", "somebody-else")
    assert acting_user() == own
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000)
    assert acting_user() == "uid 4000000"
    monkeypatch.setattr(os, "getuid", lambda: 0)
    monkeypatch.setenv("SUDO_UID", "4000001")
    assert acting_user() == f"uid 4000001 as {pwd.getpwuid(0).pw_name}"


def test_what_a_command_makes_is_its_owners_alone_unless_told(tmp_path: Path) -> None:
    for home, umask, wanted in (("a", "077", 0o700), ("b", "027", 0o750)):
        environment = os.environ | {"HEADGATE_UMASK": umask}
        command = [sys.executable, "-m", "headgate.cli", "--home", str(tmp_path / home), "keys"]
        subprocess.run(
            [*command, "add", "dashboard", "--role", "read"], env=environment, check=True
        )
        made = [tmp_path / home, *(path for path in (tmp_path / home).rglob("*") if path.is_dir())]
        assert {stat.S_IMODE(path.stat().st_mode) for path in made} == {wanted}


def test_the_doctor_names_what_is_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(home=tmp_path / "home")
    settings.home.mkdir(mode=0o700)
    assert open_paths(settings).remedy is None
    settings.home.chmod(0o755)
    assert open_paths(settings).remedy == f"chmod 700 {settings.home}"
    config = tmp_path / "headgate.toml"
    config.touch()
    config.chmod(0o666)
    monkeypatch.setenv("HEADGATE_CONFIG", str(config))
    assert open_paths(settings).remedy == f"chmod 700 {settings.home}; chmod go-w {config}"


@pytest.mark.full
def test_a_log_is_turned_over_before_it_fills_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = PlatformProcess("long", ("--help",), load(home=tmp_path))
    first.process.wait(60)
    assert first.last_words(1) == "'headgate COMMAND --help' says more."
    size = first.log.stat().st_size
    monkeypatch.setattr(subprocesses, "LARGEST_LOG", size + 10)
    monkeypatch.setattr(subprocesses, "OLD_LOGS", 1)
    for _ in range(2):
        again = PlatformProcess("long", ("--help",), load(home=tmp_path))
        again.process.wait(60)
        assert again.last_words(1) == "'headgate COMMAND --help' says more."
    logs = {path.name: path.stat().st_size for path in tmp_path.glob("long.log*")}
    assert set(logs) == {"long.log", "long.log.1"}
    assert max(logs.values()) <= size + 10


@pytest.fixture
def keyed(tmp_path: Path) -> Settings:
    keys = [
        {"name": role, "role": role, "token_file": str(secret(tmp_path, f"token-{role}"))}
        for role in ("metrics", "read", "query")
    ]
    return load(home=tmp_path, api={"keys": keys, "token_file": str(secret(tmp_path, "token-all"))})


@pytest.mark.parametrize(
    ("role", "allowed"),
    [
        ("metrics", {"/metrics"}),
        ("read", {"/metrics", "/api/v1/alerts", "/api/v1/tables"}),
        ("query", {"/metrics", "/api/v1/alerts", "/api/v1/tables", "/api/v1/statements"}),
        ("all", {"/metrics", "/api/v1/alerts", "/api/v1/tables", "/api/v1/statements"}),
    ],
)
def test_a_key_may_what_its_role_says(keyed: Settings, role: str, allowed: set[str]) -> None:
    with TestClient(create_app(keyed), raise_server_exceptions=False) as client:
        client.headers["Authorization"] = f"Bearer token-{role}"
        said = {
            path: client.post(path, json={"sql": "SELECT 1"})
            if path.endswith("statements")
            else client.get(path)
            for path in ("/metrics", "/api/v1/alerts", "/api/v1/tables", "/api/v1/statements")
        }
    refused = {path for path, answer in said.items() if answer.status_code == 403}
    assert refused == set(said) - allowed
    assert 401 not in {answer.status_code for answer in said.values()}
    for path in refused:
        assert f"key '{role}' has role '{role}'" in said[path].json()["detail"]


def test_a_statement_is_noted_under_the_name_of_its_key(keyed: Settings) -> None:
    with TestClient(create_app(keyed)) as client:
        client.headers["Authorization"] = "Bearer token-query"
        client.post("/api/v1/statements", json={"sql": "DELETE FROM silver.event"})
    (row,) = (keyed.home / "spool" / "audit").glob("*.json")
    noted = json.loads(row.read_text())
    assert (noted["who"], noted["outcome"]) == ("query", "refused")


def test_two_keys_with_one_token_are_refused(keyed: Settings, tmp_path: Path) -> None:
    same = str(secret(tmp_path, "token-all"))
    keys = [{"name": "twin", "role": "read", "token_file": same}]
    with pytest.raises(Fatal, match="'twin': another key has the same token"):
        create_app(load(home=tmp_path, api={"keys": keys, "token_file": same}))
    assert token_of(keyed) == "token-all"
