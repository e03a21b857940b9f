"""The forms in which clusters run us: manifests, image, units, tables of cron. No engine runs here,
so each is held against what the engine publishes, and against the code it starts."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from headgate.cli import COMMANDS
from infra.config.settings import load
from infra.kafka.auth import hand_to_executors
from infra.runtime.driver import Driver
from infra.runtime.job_registry import JOBS
from infra.spark.session import project_root
from ingest.listen.listener_status import listener_folder
from tests.cluster.kinds import defects
from tests.full import rest_full

FORMS = project_root() / "infra" / "deploy"
KUBERNETES = FORMS / "kubernetes"
MANIFESTS = sorted(path for path in KUBERNETES.glob("*.yaml") if path.stem != "kustomization")
UNITS = sorted((FORMS / "systemd").iterdir())


def objects() -> Iterator[dict[str, Any]]:
    for path in MANIFESTS:
        yield from yaml.safe_load_all(path.read_text("utf-8"))


def of_kind(*kinds: str) -> list[dict[str, Any]]:
    return [one for one in objects() if one["kind"] in kinds]


def drivers() -> dict[str, dict[str, Any]]:
    """The StatefulSets of jobs, by name."""
    sets = {one["metadata"]["name"]: one for one in of_kind("StatefulSet")}
    sets.pop("listener")
    return sets


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and pod template of all that starts pods."""
    for one in of_kind("StatefulSet", "Deployment", "CronJob"):
        spec = one["spec"].get("jobTemplate", {}).get("spec") or one["spec"]
        yield one["metadata"]["name"], spec["template"]


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.stem)
def test_every_object_is_one_the_api_takes(path: Path) -> None:
    found = list(yaml.safe_load_all(path.read_text("utf-8")))
    assert found
    assert [defect for one in found for defect in defects(one)] == []


def test_the_schema_refuses_a_misspelt_field() -> None:
    wrong = of_kind("StatefulSet")[0]
    wrong["spec"]["template"]["spec"]["containers"][0]["enviroment"] = []
    assert any("enviroment" in defect for defect in defects(wrong))


def test_kustomization_names_every_manifest() -> None:
    text = (KUBERNETES / "kustomization.yaml").read_text("utf-8")
    named = set(re.findall(r"^  (?:# )?- (\S+\.yaml)", text, re.M))
    assert named == {path.name for path in MANIFESTS}


def test_every_job_has_a_driver_of_its_own_and_never_two() -> None:
    sets = drivers()
    assert set(sets) == set(JOBS)
    for job, one in sets.items():
        container = one["spec"]["template"]["spec"]["containers"][0]
        assert one["spec"]["replicas"] == 1
        assert container["args"] == ["headgate", "run", job]
        for probe in ("startupProbe", "livenessProbe"):
            assert f"/home/status/{job}.json" in container[probe]["exec"]["command"][-1]


def test_whoever_commits_runs_on_one_node() -> None:
    committing = {name for name, pod in pods() if pod["spec"].get("affinity")}
    assert committing == {*JOBS, "compact"}


def test_pods_ask_for_no_right_that_restricted_namespaces_refuse() -> None:
    executor = yaml.safe_load(of_kind("ConfigMap")[0]["data"]["executor.yaml"])
    for _, pod in [*pods(), ("executor", executor)]:
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True
        assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["spec"]["containers"]:
            assert container["securityContext"]["allowPrivilegeEscalation"] is False
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


@pytest.mark.full
def test_what_a_pod_names_is_there() -> None:
    there = {(one["kind"], one["metadata"]["name"]) for one in objects()}
    data = of_kind("ConfigMap")[0]["data"]
    executor = yaml.safe_load(data["executor.yaml"])
    assert defects(executor) == []
    for _, pod in [*pods(), ("executor", executor)]:
        account = pod["spec"].get("serviceAccountName")
        assert account is None or ("ServiceAccount", account) in there
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        for volume in volumes.values():
            claim = volume.get("persistentVolumeClaim", {}).get("claimName", "headgate")
            assert ("PersistentVolumeClaim", claim) in there
            assert ("ConfigMap", volume.get("configMap", {}).get("name", "headgate")) in there
        for container in pod["spec"]["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} <= set(volumes)
            for one in container.get("env", ()):
                if one["name"] == "HEADGATE_CONFIG":
                    assert Path(one["value"]).name in data


def test_executors_start_in_a_folder_of_their_own() -> None:
    """They unpack Spark's archives there, and may do so all at once."""
    executor = yaml.safe_load(of_kind("ConfigMap")[0]["data"]["executor.yaml"])
    (container,) = executor["spec"]["containers"]
    mounted = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in executor["spec"]["volumes"]}
    assert "emptyDir" in volumes[mounted[container["workingDir"]]]


def patched(whole: Any, patch: Any) -> Any:
    """A strategic merge: maps by key, lists by name or by where something is mounted."""
    if isinstance(whole, dict) and isinstance(patch, dict):
        keys = dict.fromkeys([*whole, *patch])
        return {
            key: patched(whole[key], patch[key])
            if key in whole and key in patch
            else whole.get(key, patch.get(key))
            for key in keys
        }
    if isinstance(whole, list) and isinstance(patch, list):
        by = "mountPath" if "mountPath" in whole[0] else "name"
        known = {each[by]: each for each in whole}
        other = {each[by]: each for each in patch}
        return list(patched(known, other).values())
    return patch


def test_with_tls_every_probe_of_the_api_speaks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    component = yaml.safe_load((KUBERNETES / "tls" / "kustomization.yaml").read_text("utf-8"))
    (patch,) = component["patches"]
    (plain,) = of_kind("Deployment")
    whole = patched(plain, yaml.safe_load((KUBERNETES / "tls" / patch["path"]).read_text("utf-8")))
    assert defects(whole) == []
    pod = whole["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    probes = {name: probe["httpGet"] for name, probe in container.items() if "Probe" in name}
    assert len(probes) == 3
    for probe in probes.values():
        assert probe == {"path": "/healthz", "port": "http", "scheme": "HTTPS"}
    mounted = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
    volumes = {each["name"]: each for each in pod["volumes"]}
    # The kubelet adds the group's right to read: what root owns may have that.
    assert volumes[mounted["/etc/headgate-tls"]]["secret"]["defaultMode"] == 0o400
    assert set(mounted.values()) == set(volumes) == {"headgate", "settings", "tls"}
    for each in container["env"]:
        if each["name"] != "HEADGATE_CONFIG":
            monkeypatch.setenv(each["name"], each["value"])
    api = load().api
    assert (api.certificate_file, api.key_file) == (
        Path("/etc/headgate-tls/tls.crt"),
        Path("/etc/headgate-tls/tls.key"),
    )


def test_the_listener_is_reached_where_it_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    (listener,) = (one for one in of_kind("StatefulSet") if one["metadata"]["name"] == "listener")
    (container,) = listener["spec"]["template"]["spec"]["containers"]
    for each in container["env"]:
        if each["name"] != "HEADGATE_CONFIG":
            monkeypatch.setenv(each["name"], each["value"])
    listen = load().listen
    assert listen.otlp is not None
    ports = {("UDP" if p.protocol == "udp" else "TCP", p.port) for p in listen.syslog}
    ports.add(("TCP", listen.otlp.http_port))
    assert {listen.otlp.host, *(port.host for port in listen.syslog)} == {"0.0.0.0"}
    exposed = {(p.get("protocol", "TCP"), p["containerPort"]) for p in container["ports"]}
    (service,) = (one for one in of_kind("Service") if one["metadata"]["name"] == "listener")
    served = {(p.get("protocol", "TCP"), p["port"]) for p in service["spec"]["ports"]}
    (policy,) = (one for one in of_kind("NetworkPolicy") if one["metadata"]["name"] == "listener")
    (rule,) = policy["spec"]["ingress"]
    let_in = {(p["protocol"], p["port"]) for p in rule["ports"]}
    assert exposed == served == let_in == ports
    assert listener_folder(load()) == load().home.absolute() / "listen"
    for probe in ("startupProbe", "livenessProbe"):
        assert "/home/listen/status.json" in container[probe]["exec"]["command"][-1]


def test_settings_in_the_manifests_are_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "headgate.toml"
    data = of_kind("ConfigMap")[0]["data"]
    file.write_text(data["headgate.toml"])
    monkeypatch.setenv("HEADGATE_KAFKA__PASSWORD", "of the Secret")
    kafka = load(file).kafka
    assert kafka.ca_file is not None
    assert kafka.ca_file.name in data  # the folder is where each pod has the ConfigMap
    images = {c["image"] for _, pod in pods() for c in pod["spec"]["containers"]}
    for one in drivers().values():
        container = one["spec"]["template"]["spec"]["containers"][0]
        told = {each["name"]: each["value"] for each in container["env"] if "value" in each}
        monkeypatch.setenv("HEADGATE_SPARK__CONF", told["HEADGATE_SPARK__CONF"])
        conf = load(file).spark.conf
        assert conf["spark.driver.host"] == "$(POD_IP)"
        assert int(conf["spark.executor.instances"]) > 0
        assert {conf["spark.kubernetes.container.image"]} == images


@pytest.mark.parametrize("cluster", ["standalone", "yarn"])
def test_settings_of_a_cluster_load_and_let_workers_reach_driver_and_broker(
    cluster: str, tmp_path: Path
) -> None:
    settings = load(FORMS / cluster / "headgate.toml")
    kafka, encrypted = settings.kafka, {"spark.network.crypto.enabled": "true"}
    assert kafka.protocol != "PLAINTEXT"
    if kafka.password_file is not None:
        (tmp_path / "password").touch(0o600)
        (tmp_path / "password").write_text("secret")
        kafka = kafka.model_copy(update={"password_file": tmp_path / "password"})
    told = hand_to_executors(settings.model_copy(update={"kafka": kafka}), encrypted)
    assert bool(told) == (kafka.user is not None)
    assert settings.spark.master.startswith({"standalone": "spark://", "yarn": "yarn"}[cluster])
    assert {"spark.driver.host", "spark.driver.bindAddress"} <= set(settings.spark.conf)
    assert settings.maintenance.minutes == settings.jobs.quality_minutes == 0
    assert settings.jobs.ledger_minutes == 0


def test_commands_in_units_cron_and_manifests_exist() -> None:
    texts = [path.read_text("utf-8") for path in [*UNITS, FORMS / "cron" / "headgate"]]
    started = {
        word
        for text in texts
        for word in re.findall(r"(?:bin/|\d |nice -n 10 )headgate ([a-z-]+)", text)
    }
    args = [c["args"] for _, pod in pods() for c in pod["spec"]["containers"]]
    started |= {re.findall(r"headgate,? ([a-z-]+)", ", ".join(one))[0] for one in args}
    beside = {"compact", "quality", "rules", "ledger", "report", "models"}
    assert started == {"up", "run", "api", "listen"} | beside
    assert started <= set(COMMANDS)


@pytest.mark.parametrize("unit", rest_full(2, UNITS), ids=lambda path: path.name)
def test_systemd_takes_the_unit(unit: Path, tmp_path: Path) -> None:
    """All units together, as one refers to another, with commands of this machine's."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    for one in UNITS:
        text = one.read_text("utf-8").replace("/opt/headgate/bin/", "/bin/")
        text = re.sub(r"/bin/(headgate|spark-class)\b", "/bin/true", text)
        (tmp_path / one.name).write_text(text)
    told = subprocess.run(
        ["systemd-analyze", "verify", "--recursive-errors=no", "--man=no", tmp_path / unit.name],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (told.returncode, told.stderr) == (0, "")


@pytest.mark.parametrize("cluster", ["standalone", "yarn"])
@pytest.mark.parametrize(
    "unit",
    [
        "headgate@",
        "headgate-compact",
        "headgate-quality",
        "headgate-blind",
        "headgate-ledger",
        "headgate-retrain",
    ],
)
def test_units_may_write_where_the_settings_say(unit: str, cluster: str) -> None:
    text = (FORMS / "systemd" / f"{unit}.service").read_text("utf-8")
    may = re.findall(r"^ReadWritePaths=(.+)$", text, re.M)
    may += [f"/var/lib/{name}" for name in re.findall(r"^StateDirectory=(.+)$", text, re.M)]
    settings = load(FORMS / cluster / "headgate.toml")
    wanted = [settings.home, settings.lake_root, settings.checkpoint_root, settings.scratch_root]
    assert all(any(path.is_relative_to(one) for one in may) for path in wanted)


def test_one_driver_of_all_jobs_excludes_drivers_of_single_ones() -> None:
    unit = (FORMS / "systemd" / "headgate.service").read_text("utf-8")
    (excluded,) = re.findall(r"^Conflicts=(.+)$", unit, re.M)
    assert set(excluded.split()) == {f"headgate@{job}.service" for job in JOBS}


def test_of_units_that_exclude_each_other_one_is_gone_before_the_other_starts() -> None:
    """After= does that whichever of the two is stopped; in both units it would be a cycle."""
    after, pairs = set(), set()
    for unit in UNITS:
        for kind, names in re.findall(r"^(After|Conflicts)=(.+)$", unit.read_text("utf-8"), re.M):
            found = {(unit.name, re.sub(r"@\w+\.", "@.", name)) for name in names.split()}
            (after if kind == "After" else pairs).update(found)
    assert pairs
    for one, other in pairs:
        assert ((one, other) in after) != ((other, one) in after), (one, other)


def test_every_timer_starts_a_service_and_all_schedules_agree() -> None:
    timers = {path.stem for path in UNITS if path.suffix == ".timer"}
    assert timers <= {path.stem for path in UNITS if path.suffix == ".service"}
    crons = {one["metadata"]["name"]: one["spec"]["schedule"] for one in of_kind("CronJob")}
    commands = {"blind": ("rules", "coverage"), "retrain": ("models", "retrain")}
    assert timers == {f"headgate-{name}" for name in crons}
    table = (FORMS / "cron" / "headgate").read_text("utf-8")
    for name, schedule in crons.items():
        minute, hour = schedule.split()[:2]
        unit = (FORMS / "systemd" / f"headgate-{name}.timer").read_text("utf-8")
        at = f"{int(hour):02d}" if hour != "*" else "*"
        assert f"OnCalendar=*-*-* {at}:{minute}:00 UTC" in unit
        command = " ".join(commands.get(name, (name,)))
        assert re.search(rf"^{re.escape(schedule)} +headgate .*headgate {command}", table, re.M)


def test_the_page_starts_every_timer_there_is() -> None:
    page = (project_root() / "docs" / "how-to" / "run-on-spark-standalone.md").read_text("utf-8")
    started = re.findall(r"^systemctl enable --now (.*)$", page, re.M)
    named = {word for line in started for word in line.split() if word.endswith(".timer")}
    assert named == {path.name for path in UNITS if path.suffix == ".timer"}


def test_what_the_driver_of_all_jobs_starts_by_these_settings_each_form_does_itself() -> None:
    """`quality_minutes`, `ledger_minutes` and `maintenance.minutes` are 0 in all of them, or it
    would be done twice."""
    units = "".join(path.read_text("utf-8") for path in UNITS)
    table = (FORMS / "cron" / "headgate").read_text("utf-8")
    args = [c["args"] for _, pod in pods() for c in pod["spec"]["containers"]]
    scheduled = Driver(load(), ("ingest",))._scheduled()
    names = ("quality", "blind", "ledger", "maintenance")
    started = [one._command for one in scheduled if one.name in names]
    assert len(started) == 4
    for command in started:
        # Beside jobs it looks more often than a clock does, and only at what is due.
        command = [word for word in command if word != "--due"]
        said = " ".join(("headgate", *command))
        assert f"ExecStart=/opt/headgate/bin/{said}\n" in units
        assert f" {said} >" in table
        assert ["headgate", *command] in args


def test_the_image_holds_every_package_and_file_that_it_needs() -> None:
    text = (FORMS / "image" / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    copied = [
        source
        for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.M)
        for source in line.split()[:-1]
    ]
    project = tomllib.loads((project_root() / "pyproject.toml").read_text("utf-8"))
    wanted = {
        name.rstrip("*").replace(".", "/")
        for name in project["tool"]["setuptools"]["packages"]["find"]["include"]
    }
    wanted |= {"pyproject.toml", "requirements.lock"}
    wanted |= {project["project"]["readme"], *project["project"]["license-files"]}
    assert [name for name in wanted if not _below(name, copied)] == []
    assert [source for source in copied if not (project_root() / source).exists()] == []
    ignored = (FORMS / "image" / "Dockerfile.dockerignore").read_text("utf-8")
    kept = re.findall(r"^!(\S+)", ignored, re.M)
    assert [source for source in copied if not _below(source, kept)] == []
    assert [name for name in kept if name not in copied] == []


def _below(name: str, folders: Sequence[str]) -> bool:
    return any(name == folder or name.startswith(f"{folder}/") for folder in folders)


def test_the_image_starts_what_it_holds_and_not_as_root() -> None:
    text = (FORMS / "image" / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    built, final = re.split(r"^FROM ", text, flags=re.M)[1:]
    # One Python in both, or the environment of the first does not run in the second.
    base = built.split()[0]
    assert final.split()[0] == base
    minor = re.search(r"python:(3\.\d+)-", base)[1]
    assert re.findall(r"python(3\.\d+)/site-packages", final) == [minor]
    assert set(re.findall(r"--from=(\w+)", final)) == {built.split()[2]}

    entry = json.loads(re.search(r"^ENTRYPOINT (.+)$", final, re.M)[1])
    copied = re.search(r"^COPY infra/(.+) /opt/$", final, re.M)[1]
    scripts = [project_root() / part for part in f"infra/{copied}".split()]
    assert Path(entry[-1]).name in {script.name for script in scripts}
    for script in scripts:
        assert os.access(script, os.X_OK), f"{script}: COPY keeps that it cannot be started"
        subprocess.run(["bash", "-n", str(script)], check=True)
    # What they and the entry point call, of Debian: init, pgrep, Java.
    (installed,) = re.findall(r"apt-get install -y --no-install-recommends (.*?)&&", final)
    assert set(installed.split()) == {"openjdk-17-jre-headless", "procps", "tini"}
    command = json.loads(re.search(r"^CMD (.+)$", final, re.M)[1])
    project = tomllib.loads((project_root() / "pyproject.toml").read_text("utf-8"))["project"]
    assert command[0] in project["scripts"]

    (user,) = re.findall(r"^USER (\d+):(\d+)$", final, re.M)
    assert all(int(number) >= 1000 for number in user)
    assert f"--uid {user[0]} " in final
    assert f"--gid {user[1]} headgate" in final
    after = final.split("\nUSER ")[1]
    assert not re.search(r"^(RUN|COPY|ADD|USER) ", after, re.M), "nothing as root after this"


def test_whoever_the_image_runs_as_may_read_what_root_fetched(tmp_path: Path) -> None:
    """What `headgate` makes is its owner's alone (umask 077)."""
    text = (FORMS / "image" / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    (line,) = re.findall(r"^RUN (.*headgate doctor --jars.*)$", text, re.M)
    fetched = tmp_path / "archives" / "spark" / "one.jar"
    made = f"(umask 077; mkdir -p {fetched.parent}; touch {fetched})"
    line = line.replace("/opt/headgate/bin/headgate doctor --jars", made)
    subprocess.run(["sh", "-c", line.replace("/opt/headgate", str(tmp_path))], check=True)
    modes = [path.stat().st_mode & 0o777 for path in (fetched, fetched.parent)]
    assert modes == [0o644, 0o755]


def test_nobody_else_can_hold_the_locks_of_cron() -> None:
    table = (FORMS / "cron" / "headgate").read_text("utf-8")
    locks = [Path(name) for name in re.findall(r"flock -n (\S+)", table)]
    assert len(locks) == len(set(locks)) >= 2
    for cluster in ("standalone", "yarn"):
        home = load(FORMS / cluster / "headgate.toml").home
        assert [lock for lock in locks if lock.parent != home] == []


def test_pages_of_the_cluster_are_on_loopback() -> None:
    for name in ("master", "worker"):
        unit = (FORMS / "systemd" / f"spark-{name}.service").read_text("utf-8")
        assert "\nEnvironment=SPARK_LOCAL_IP=127.0.0.1\n" in unit


def test_the_schema_itself_is_sound() -> None:
    schema = json.loads((Path(__file__).parent / "kubernetes/v1.34.json").read_text("utf-8"))
    for kind in schema["kinds"].values():
        Draft202012Validator.check_schema(kind)
