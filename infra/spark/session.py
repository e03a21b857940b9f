"""The only place that builds a Spark session."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from infra.config.settings import Settings
from infra.errors import Fatal
from infra.kafka.auth import QUOTED_PASSWORD, hand_to_executors, hand_to_jvm
from infra.process import java_jars, jdk
from infra.spark import appcds, auth, secret_conf
from infra.spark.internals import (
    forget_where_settings_came_from,
    has_context,
    has_gateway,
    jvm_process,
)
from infra.storage.paths import bucketed, region, require, store_endpoint
from infra.storage.temp_dirs import scratch

if TYPE_CHECKING:
    import pyarrow as pa

_SMALL_JVM = (
    # Start-up takes half the time with C1 and the serial collector; without the larger code
    # cache C1 fills it within a minute, switches itself off and everything crawls.
    "-XX:+UseSerialGC -XX:ReservedCodeCacheSize=256m"
)
_BRIEF_JVM = "-XX:TieredStopAtLevel=1"
_STANDING_JVM = (
    # What plans a batch each second for weeks is worth C2's time. At ten times HotSpot's own
    # thresholds C2 leaves a start alone, which at those takes half as long again (decision 0039).
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)


_INTERPRETED = {
    # Writing and compiling Java for each stage costs more than what a small batch spares by it; the
    # rows' heavy work is done by Python workers (decision 0011).
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Spark's own tests of its optimizer, behind each of its rules.
    "spark.sql.lightweightPlanChangeValidation": "false",
}


_CHECKPOINTS = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)


_LOCAL_FILES = {
    # Hadoop's own local file system starts a `chmod` process for each file it makes, eight a
    # commit; this one asks Java. It must be there before Spark loads what `spark.jars` names.
    "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem",
}


_DAEMON = {
    "spark.python.daemon.module": "infra.spark.worker_daemon",
    # Spark says it to some workers; those it does not say it to would have a daemon of their own.
    "spark.executorEnv.SPARK_SIMPLIFIED_TRACEBACK": "1",
}


POOL = "spark.scheduler.pool"
ALERTING, LEISURE = "alerting", "default"
"""Pools of `fairscheduler.xml`: for the jobs that alerts wait for, and for the others."""

ARROW_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
NO_LIMIT = 2**31 - 1
"""At any lower limit Spark measures the whole Arrow batch after each row: of rows as wide as events
that is nine tenths of what handing them to a worker costs. A batch has at most 10,000 rows."""


@contextmanager
def at_once(spark: SparkSession, most_bytes: int) -> Iterator[None]:
    """What runs inside hands Python workers at most so many bytes at once, or one row."""
    before = spark.conf.get(ARROW_BYTES)
    spark.conf.set(ARROW_BYTES, str(most_bytes))
    try:
        yield
    finally:
        spark.conf.set(ARROW_BYTES, before or str(NO_LIMIT))


def session(
    settings: Settings, app: str = "headgate", *, small_batches: bool = False
) -> SparkSession:
    """A session for `settings`, or the running one of this process.

    `small_batches`: it works on some hundred rows at a time, again and again, as jobs do.
    Raises `Fatal` when Java, an archive or the lake's bucket is missing.
    """
    jdk.require_java()
    require(settings.lake_root)
    # Spark would start whatever `python3` is on the path, perhaps without our packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app).master(settings.spark.master)
    hand_to_jvm(settings.kafka)
    running = has_context()
    own = None if running else scratch(settings.scratch_root)
    conf, secret = secret_conf.split_secrets(conf_of(settings, own, small_batches=small_batches))
    if settings.spark.ui:
        auth.listen_on(conf["spark.driver.bindAddress"])
    if has_gateway():  # its JVM runs: nothing goes over a command line
        conf, secret = conf | secret, {}
    for key, value in conf.items():
        builder = builder.config(key, value)
    with _aside(), secret_conf.handed_over(secret, own or settings.scratch_root):
        spark = builder.getOrCreate()
    # Executors have it in their environment; PySpark would send it once more with each task.
    spark.sparkContext.environment.pop(QUOTED_PASSWORD, None)
    spark.sparkContext.setLogLevel("ERROR")
    if small_batches:
        forget_where_settings_came_from(spark)
    if settings.spark.wheel is not None:
        _ship(spark, settings.spark.wheel, settings.home)
    return spark


@contextmanager
def _aside() -> Iterator[None]:
    """A JVM begun inside says on stderr what it prints: Delta's VACUUM tells there what it deleted.

    What a command prints on stdout is for programs.
    """
    sys.stdout.flush()
    kept = os.dup(1)
    # The descriptor, not `sys.stdout`: the JVM is another process, and inherits descriptors.
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def begin_workers(spark: SparkSession) -> None:
    """Have Spark begin its daemon of Python workers now, for which the first batch would wait."""

    def begin() -> None:
        # What is wrong with workers, the first batch tells. A session that is stopped meanwhile
        # has no context, which PySpark finds out by an AttributeError.
        with suppress(PySparkException, Py4JError, OSError, AttributeError):
            spark.range(0, 1, 1, 1).mapInArrow(_as_it_is, "id long").collect()

    threading.Thread(target=begin, name="workers", daemon=True).start()


def _as_it_is(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


def jvm_ended(settings: Settings, within: float = 0.0) -> str | None:
    """Why this process has no JVM any more, in a sentence; None while it runs.

    `within`: seconds for which an end is waited for that has begun. Source of the codes:
    HotSpot's ExitOnOutOfMemoryError, Spark's SparkExitCode.
    """
    process = jvm_process()
    if process is None:
        return None
    try:
        code = process.wait(within)
    except subprocess.TimeoutExpired:
        return None
    why = f"it ended with code {code}"
    if code in (3, 52):
        why = f"it ran out of memory; {_raised(settings)}"
    elif code in (-9, 137):
        why = "it was killed; if by the kernel for want of memory, lower spark.driver_memory"
    return f"Spark's JVM is gone: {why}. {_GO_ON}"


def end_jvm(settings: Settings) -> str:
    """End this process's JVM, one that only collects garbage; what to say of it."""
    process = jvm_process()
    if process is not None:
        process.kill()
        process.wait()
    return (
        "Spark's JVM has no memory left: it spent most of a minute collecting garbage; "
        f"{_raised(settings)}. {_GO_ON}"
    )


_GO_ON = "Nothing is lost: start the driver again, and each job goes on where it was"


def _raised(settings: Settings) -> str:
    return f"raise spark.driver_memory, which is {settings.spark.driver_memory}"


def _ship(spark: SparkSession, wheel: Path, home: Path) -> None:
    """Send our code to the executors. Spark puts only .zip files on a worker's path."""
    if not wheel.exists():
        raise Fatal(f"spark.wheel = {wheel}: no such file; build it with 'python -m build --wheel'")
    packed = home.absolute() / "spark" / f"{wheel.stem}.zip"
    packed.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(wheel, packed)
    spark.sparkContext.addPyFile(str(packed))


_EVERY_SESSION = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Or what times look like, and where days begin, hangs on the machine's zone.
    "spark.sql.session.timeZone": "UTC",
    # A bad cast or an overflow fails; without it, it becomes a null that nobody sees.
    "spark.sql.ansi.enabled": "true",
    # By itself Spark listens on the address of the host's name, for the whole network.
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # At its default of 100, eight jobs throw out each other's compiled code: a fifth of what
    # they cost was compiling it again with each batch.
    "spark.sql.codegen.cache.maxEntries": "2000",
    # First in, first out, a long task of a job over history would hold up alerts.
    "spark.scheduler.mode": "FAIR",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    ARROW_BYTES: str(NO_LIMIT),
    # VACUUM and listings run 10,000 tasks with the default.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "4",
    # By default each look at a table's log is 50 tasks.
    "spark.databricks.delta.snapshotPartitions": "2",
    # Saves 0.4 s a commit.
    "spark.databricks.delta.allFilesInCrc.enabled": "false",
    # The first lower() would build ICU's tables of all characters: seconds of a start.
    "spark.sql.icu.caseMappings.enabled": "false",
    # At its default of 10 ms four idle queries burn a third of a core.
    "spark.sql.streaming.pollingDelay": "200ms",
    "spark.sql.streaming.stopTimeout": "30s",
    "spark.sql.streaming.minBatchesToRetain": "20",
    # Also how long a snapshot of state waits to be kept: who is killed before starts slower.
    "spark.sql.streaming.stateStore.maintenanceInterval": "10s",
    "spark.sql.streaming.metricsEnabled": "false",
    # Without Hadoop's native library, its FileContext forks a `readlink` for every look at a
    # local path: some 30 processes a second with four idle jobs, 40 % of both cores.
    "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
    "spark.delta.logStore.file.impl": "io.delta.storage.LocalLogStore",
    # The local file system keeps checksums of its own.
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    # Spark's own code warns of a coming pandas once a batch, from each worker.
    "spark.executorEnv.PYTHONWARNINGS": "ignore::FutureWarning:pyspark.sql.pandas.serializers",
    # Named parameters beside Delta's parser fail without it (UNBOUND_SQL_PARAMETER).
    "spark.sql.legacy.parameterSubstitution.constantsOnly": "true",
}


def conf_of(settings: Settings, own: Path | None, *, small_batches: bool) -> dict[str, str]:
    """Spark's settings for a session; those of `settings.spark.conf` stand above all others.

    `own`: the folder for what a JVM that begins needs only while it lives.
    """
    log = Path(__file__).with_name("log4j2.properties")
    pools = Path(__file__).with_name("fairscheduler.xml")
    local, in_bucket = settings.spark.local, bucketed(settings.lake_root)
    archives = [
        *(() if local else java_jars.paths("spark")),
        *(java_jars.paths("bucket") if in_bucket else ()),
    ]
    conf = _EVERY_SESSION | {
        "spark.jars": ",".join(str(path) for path in archives),
        "spark.sql.warehouse.dir": str(settings.home.absolute() / "spark" / "warehouse"),
        "spark.scheduler.allocation.file": pools.as_uri(),
        "spark.driver.memory": settings.spark.driver_memory,
        "spark.driver.extraJavaOptions": _java_options(settings, log, small_batches=small_batches),
        "spark.sql.shuffle.partitions": str(settings.spark.shuffle_partitions),
    }
    if in_bucket:
        conf |= _bucket()
    if local:
        # All on the class path, as the archive of classes holds only what is loaded from there.
        ours = ":".join(map(str, appcds.ours()))
        conf |= _LOCAL_FILES | {"spark.driver.extraClassPath": ours}
    if small_batches and settings.spark.small:
        conf |= _INTERPRETED
    if small_batches and local:  # workers elsewhere may get our code only with their task
        conf |= _DAEMON
    if own is not None:
        conf["spark.local.dir"] = str(own)
        conf["spark.driver.extraJavaOptions"] += " " + shlex.quote(f"-Djava.io.tmpdir={own}")
        if local:  # S3A keeps there what it has yet to send
            conf["spark.hadoop.hadoop.tmp.dir"] = str(own)
    if not local:
        conf["spark.executor.defaultJavaOptions"] = f"-Dlog4j2.configurationFile={log.as_uri()}"
        # Where they lack that file they are told the level, but for those that begin before us.
        conf["spark.executor.syncLogLevel.enabled"] = "true"
    conf |= auth.conf(settings) | auth.umask_conf(settings.mask)
    conf |= settings.spark.conf
    return conf | hand_to_executors(settings, conf)


def _java_options(settings: Settings, log: Path, *, small_batches: bool) -> str:
    """Options of the driver's JVM."""
    # Without memory some threads die and others wait for them: rather all at once, and by name.
    options = (
        f"-XX:+ExitOnOutOfMemoryError {shlex.quote(f'-Dlog4j2.configurationFile={log}')} "
        # Spark takes the error of a batch that is stopped apart with a pattern that needs much.
        "-Djava.net.preferIPv4Stack=true -Xss4m"
    )
    if settings.spark.small:
        room = _heap_at_first(settings.spark.driver_memory) if small_batches else ""
        compiler = _STANDING_JVM if small_batches else _BRIEF_JVM
        options = f"{compiler} {_SMALL_JVM} {room}{options}"
    return appcds.options() + options if settings.spark.local else options


def _heap_at_first(memory: str) -> str:
    """An option for a third of `memory`, as of a driver; none for a size that has no unit.

    The JVM's own choice, a 64th of the machine's memory, is full within seconds of a start. Then
    the serial collector looks through all of it again and again while states are loaded.
    """
    match = re.fullmatch(r"(\d+)([gm])b?", memory.strip().lower())
    if not match:
        return ""
    megabytes = int(match[1]) * (1024 if match[2] == "g" else 1)
    return f"-Xms{megabytes // 3}m "


def _bucket() -> dict[str, str]:
    """How Spark reaches the object store. Its credentials it looks for itself, where we do."""
    where = store_endpoint()
    message = {"AWS_REGION": region()} | ({"AWS_ENDPOINT_URL_S3": where} if where else {})
    return {
        "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "spark.hadoop.fs.AbstractFileSystem.s3.impl": "org.apache.hadoop.fs.s3a.S3A",
        "spark.hadoop.fs.s3a.endpoint.region": region(),
        "spark.hadoop.fs.s3a.path.style.access": str(bool(where)).lower(),
        "spark.hadoop.fs.s3a.aws.credentials.provider": _CREDENTIALS,
        # Else S3A looks before each file whether a folder of that name is there.
        "spark.hadoop.fs.s3a.performance.flags": "create",
        **({"spark.hadoop.fs.s3a.endpoint": where} if where else {}),
        **{f"spark.executorEnv.{name}": value for name, value in message.items()},
    }


_CREDENTIALS = (
    ",".join(
        f"software.amazon.awssdk.auth.credentials.{name}CredentialsProvider"
        for name in ("EnvironmentVariable", "WebIdentityTokenFile", "Profile", "Container")
    )
    + ",org.apache.hadoop.fs.s3a.auth.IAMInstanceCredentialsProvider"
)


def project_root() -> Path:
    """Folder that holds the packages, as a worker must have it on its path."""
    return Path(__file__).resolve().parents[2]
