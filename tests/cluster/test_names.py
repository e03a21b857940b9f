"""A setting of Spark that Spark does not know does nothing, and nothing says so."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from infra.config.settings import load
from infra.spark.internals import java
from infra.spark.session import conf_of, project_root
from tests.cluster.test_forms import FORMS, drivers, of_kind

DECLARED_IN = [
    *(
        f"org.apache.spark.internal.config.{name}$"
        for name in ("package", "UI", "Network", "Worker", "Python", "Deploy", "Status")
    ),
    "org.apache.spark.deploy.k8s.Config$",
    "org.apache.spark.deploy.yarn.config.package$",
    "org.apache.spark.sql.internal.SQLConf$",
    "org.apache.spark.sql.internal.StaticSQLConf$",
    "org.apache.spark.sql.delta.sources.DeltaSQLConf$",
]
UNDECLARED = {
    "spark.delta.logStore.file.impl",
    "spark.executor.defaultJavaOptions",
    "spark.kubernetes.authenticate.caCertFile",
    "spark.kubernetes.authenticate.oauthTokenFile",
    "spark.local.dir",
    "spark.network.crypto.authEngineVersion",
    "spark.sql.streaming.checkpointFileManagerClass",
}
"""Spark asks for these without having declared them."""
FREE = (
    r"spark\.(hadoop|executorEnv|org\.apache\.spark\.ui\.JWSFilter\.param)\.",
    r"spark\.yarn\.appMasterEnv\.",
)
"""What follows is someone else's name."""


Told = tuple[str, str, str]
"""Who sets something, its name, its value."""


@pytest.fixture(scope="module")
def defect(spark: SparkSession) -> Callable[[str, str], str | None]:
    """What Spark, Delta and their parts for clusters have against a setting."""
    for name in DECLARED_IN:
        _ = java(spark, name).__getattr__("MODULE$")  # its entries are declared as it is loaded
    entries = java(spark, "org.apache.spark.internal.config.ConfigEntry")

    def found(name: str, value: str) -> str | None:
        if name in UNDECLARED or any(re.match(pattern, name) for pattern in FREE):
            return None
        if (entry := entries.findEntry(name)) is None:
            return "unknown"
        try:
            java(spark, "org.apache.spark.SparkConf")(False).set(name, value).get(entry)
        except (PySparkException, Py4JError) as error:
            return str(error)
        return None

    return found


def forms() -> Iterator[Told]:
    """What our forms and the page about them set."""
    manifest = of_kind("ConfigMap")[0]["data"]["headgate.toml"]
    texts = {"kubernetes": manifest}
    texts |= {one: (FORMS / one / "headgate.toml").read_text() for one in ("standalone", "yarn")}
    for where, text in texts.items():
        for name, value in tomllib.loads(text)["spark"]["conf"].items():
            yield where, name, value
    for one in drivers().values():
        container = one["spec"]["template"]["spec"]["containers"][0]
        told = {each["name"]: each.get("value", "") for each in container["env"]}
        for name, value in json.loads(told["HEADGATE_SPARK__CONF"]).items():
            yield one["metadata"]["name"], name, value
    defaults = (FORMS / "standalone" / "spark-defaults.conf").read_text("utf-8")
    for name, value in re.findall(r"^(spark\.\S+) +(\S+)$", defaults, re.M):
        yield "spark-defaults.conf", name, value
    page = (project_root() / "docs" / "how-to" / "run-several-drivers.md").read_text("utf-8")
    for name, value in re.findall(r'"(spark\.[\w.]+)"(?: =|:) "([^"]+)"', page):
        yield "docs/how-to/run-several-drivers.md", name, value


def sessions(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Told]:
    """What the sessions that we build set."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    for lake, master in ((None, "local[2]"), ("s3://a/b", "local[2]"), (None, "spark://m:7077")):
        settings = load(home=folder, lake=lake, spark={"master": master, "ui": True})
        for name, value in conf_of(settings, folder, small_batches=True).items():
            yield f"{lake} {master}", name, value


@pytest.mark.full
def test_spark_knows_every_setting_and_can_read_its_value(
    defect: Callable[[str, str], str | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = [*forms(), *sessions(tmp_path, monkeypatch)]
    assert {where for where, _, _ in told} > {
        "yarn",
        "standalone",
        "kubernetes",
        "docs/how-to/run-several-drivers.md",
    }
    found = [(where, name, defect(name, value)) for where, name, value in told]
    assert [one for one in found if one[2] is not None] == []


def test_what_is_misspelt_is_noticed(defect: Callable[[str, str], str | None]) -> None:
    name = "spark.yarn.am.attemptFailuresValidityInterval"
    assert defect(name, "1h") is None
    assert defect("spark.yarn.am.attemptFailureValidityInterval", "1h") == "unknown"
    assert "1 hour" in (defect(name, "1 hour") or "")
