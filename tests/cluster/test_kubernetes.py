"""Job ingest with the settings, the pod template and the entrypoint of the Kubernetes form.

Spark's own Kubernetes scheduler makes the executors. What stands in for Kubernetes checks each
object against the published schema and runs its container as a process (`tests/cluster/kube.py`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyspark
import pytest
import yaml

from bench.standalone import SMALL
from infra.delta.duckdb_views import connect
from infra.kafka.client import producer, topic_of
from infra.spark.session import project_root
from tests.cluster.guarded import CANARY, PASSWORD, guarded
from tests.cluster.kube import Plant, kube

FORM = project_root() / "infra" / "deploy"
LINES = 200


def settings_of(job: str, folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """The variables of a job's driver as its pod has them, and the files of the ConfigMap."""
    manifest = yaml.safe_load((FORM / "kubernetes" / f"job-{job}.yaml").read_text("utf-8"))
    (container,) = manifest["spec"]["template"]["spec"]["containers"]
    pod = {"$(POD_IP)": "127.0.0.1", "$(POD_NAME)": f"{job}-0"}
    told = {}
    for one in container["env"]:
        value = one.get("value", "")
        for name, known in pod.items():
            value = value.replace(name, known)
        told[one["name"]] = value
    config = yaml.safe_load((FORM / "kubernetes" / "settings.yaml").read_text("utf-8"))
    files = {}
    for name, text in config["data"].items():
        # The token and the certificate are Kubernetes' own to give.
        kept = [line for line in text.splitlines() if "spark.kubernetes.authenticate" not in line]
        (folder / name).write_text("\n".join(kept))
        files[name] = str(folder / name)
    return told, files


def this_machine(conf: dict[str, Any], files: dict[str, str]) -> dict[str, Any]:
    """The driver's settings with what a single small machine needs otherwise."""
    return conf | {
        "spark.kubernetes.executor.podTemplateFile": files["executor.yaml"],
        "spark.executor.instances": "1",
        "spark.executor.cores": "1",
        "spark.executor.memory": "512m",
        "spark.executor.memoryOverhead": "1g",
        "spark.executor.extraJavaOptions": SMALL,
        "spark.driver.port": "0",
        "spark.blockManager.port": "0",
    }


@pytest.mark.full
@pytest.mark.cluster
def test_executors_run_from_our_template_and_entrypoint_and_reach_a_guarded_broker(
    tmp_path: Path,
) -> None:
    told, files = settings_of("ingest", tmp_path)
    conf = this_machine(json.loads(told["HEADGATE_SPARK__CONF"]), files)
    image = {"SPARK_HOME": str(Path(pyspark.__file__).parent), "PYTHONPATH": str(project_root())}
    secrets = {"headgate": {"HEADGATE_KAFKA__PASSWORD": PASSWORD}}
    plant = Plant(FORM / "image" / "entrypoint.sh", image, tmp_path, secrets)
    # The pod that the driver runs in: executors are made its own, so that they end with it.
    plant.pods["ingest-0"] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "ingest-0", "namespace": "headgate", "uid": "0", "labels": {}},
        "spec": {"containers": [{"name": "driver"}]},
    }
    with guarded(tmp_path, "sshd") as broker, kube(plant) as address:
        environment = os.environ | {
            **broker.environment,
            **secrets["headgate"],
            "HEADGATE_CONFIG": files["headgate.toml"],
            "HEADGATE_HOME": str(tmp_path / "home"),
            "HEADGATE_LAKE": str(tmp_path / "lake"),
            "HEADGATE_CHECKPOINTS": str(tmp_path / "checkpoints"),
            "HEADGATE_SCRATCH": str(tmp_path / "scratch"),
            "HEADGATE_SPARK__MASTER": f"k8s://{address}",
            "HEADGATE_SPARK__SMALL": "true",
            "HEADGATE_SPARK__DRIVER_MEMORY": "1g",
            "HEADGATE_SPARK__CONF": json.dumps(conf),
        }
        client = producer(broker.admin)
        stamp = datetime.now(UTC).isoformat(timespec="seconds")
        for number in range(LINES):
            line = f"<38>1 {stamp} host sshd {number} - - Server listening on :: port 22."
            client.produce(topic_of("sshd", broker.admin), line.encode())
        client.flush(20)
        done = subprocess.run(
            [sys.executable, "-m", "headgate.cli", "run", "ingest", "--once"],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
            timeout=300,
        )
        left = list(plant.pods)
        ran = list(tmp_path.glob("*-exec-*.log"))
        words = [path.read_text("utf-8", "replace")[-1500:] for path in ran]
        assert done.returncode == 0, (done.stderr[-2000:], words, plant.asked[-20:])
    assert plant.refused == []
    assert CANARY not in json.dumps(plant.described)
    # What Spark unpacked lies in a folder of the pod's own.
    assert [one.name for one in (tmp_path / "work").iterdir()] == [ran[0].stem]
    assert list((tmp_path / "work").rglob("delta-*.jar"))
    assert len(ran) == 1
    assert " INFO " not in ran[0].read_text()
    assert plant.secured == [True]
    assert left == ["ingest-0"], "executors were left behind"
    (records,) = connect(tmp_path / "lake").execute(
        "SELECT count(*) FROM bronze.record"
    ).fetchone() or (0,)
    assert records == LINES
