"""Everything of Spark and Delta that is no public interface, each use behind a name.

Written for Spark 4.2 and Delta 4.4. Whoever takes a newer one runs
`tests/infra/spark/test_internals.py`: it has a test for each function here, which fails by its
name where the class, method or field is no longer there or does something else.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import SparkContext
from pyspark.serializers import NoOpSerializer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.util import _load_from_socket

SPARK_API = "org.apache.spark.api"
DELTA = "org.apache.spark.sql.delta"
_DAY_MS = 24 * 3600 * 1000


UNREADABLE_TIME = "overflows when converting to Spark's microsecond-precision"
"""What Spark's reader of Kafka says of a message whose time, which is its sender's, it has no
number for; it then reads none of the messages with it."""


def java(spark: SparkSession, name: str) -> Any:
    """A class of the JVM by its whole name.

    Package by package, as in `jvm.org.apache...`, each step looks through every archive for a
    class of that name: that was a third of what the driver's part of an ingest batch cost.
    """
    return getattr(spark._jvm, name)


def items(sequence: Any) -> list[Any]:
    """What a Scala `Seq` holds."""
    return [sequence.apply(number) for number in range(sequence.size())]


# -- the process and its JVM -----------------------------------------------------------------------


def has_context() -> bool:
    """Whether this process has a running Spark."""
    return SparkContext._active_spark_context is not None


def has_gateway() -> bool:
    """Whether this process has a JVM, which outlives the sessions in it."""
    return SparkContext._gateway is not None


def jvm_process() -> subprocess.Popen[bytes] | None:
    """The JVM's process, if this one started it."""
    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    return process


def collection_seconds(spark: SparkSession) -> float:
    """Seconds that the JVM has collected garbage since it began."""
    beans = java(spark, "java.lang.management.ManagementFactory").getGarbageCollectorMXBeans()
    return float(sum(bean.getCollectionTime() for bean in beans)) / 1000


@dataclass(frozen=True)
class HeapUse:
    """Bytes of the JVM's heap: in use, taken from the system, and in use after collections."""

    used: int
    committed: int
    after_collection: int


def heap_use(spark: SparkSession) -> HeapUse:
    """The heap as it is now."""
    beans = java(spark, "java.lang.management.ManagementFactory")
    heap = beans.getMemoryMXBean().getHeapMemoryUsage()
    pools = [pool.getCollectionUsage() for pool in beans.getMemoryPoolMXBeans()]
    after = max((usage.getUsed() for usage in pools if usage is not None), default=0)
    return HeapUse(heap.getUsed(), heap.getCommitted(), after)


def collect_garbage(spark: SparkSession) -> None:
    """Have the JVM collect garbage now."""
    java(spark, "java.lang.System").gc()


def pool_share(spark: SparkSession, pool: str) -> tuple[str, int]:
    """How a pool of the fair scheduler orders its tasks, and its least share of cores."""
    schedulable = spark.sparkContext._jsc.sc().getPoolForName(pool).get()
    return schedulable.schedulingMode().toString(), schedulable.minShare()


def forget_where_settings_came_from(spark: SparkSession) -> None:
    """Let Hadoop forget which file each of its settings is from.

    Each batch hands them to its tasks a dozen times, and Hadoop writes down where each came from
    as a compressed text of its own: three quarters of what that cost.
    """
    settings = spark.sparkContext._jsc.hadoopConfiguration()
    # A private field: Hadoop has no setting for it, and nothing but messages reads it.
    field = settings.getClass().getDeclaredField("updatingResource")
    field.setAccessible(True)
    field.get(settings).clear()


# -- running queries -------------------------------------------------------------------------------


class QueryControl:
    """The four things of a running query that are set from outside.

    Source: `MicroBatchExecution.uniqueSources`, asked for each batch, and the interval and the
    clock of `ProcessingTimeExecutor`, by which it waits for the next look at its inputs.
    """

    def __init__(self, spark: SparkSession, query: StreamingQuery) -> None:
        self._spark = spark
        self._limit = java(spark, "org.apache.spark.sql.connector.read.streaming.ReadLimit")
        self._execution: Any = query._jsq.streamingQuery()
        self._clock: Any = None
        self._limits: Any = None
        """Of all sources, by source."""
        self._without: frozenset[int] = frozenset()
        self._lock = threading.Lock()

    def limit_files(self, files: Sequence[int]) -> None:
        """The most files of each source, in their order, that a batch takes from now on."""
        with self._lock:
            # By `sources`, whose order is that of the offsets; the map of limits has none.
            sources, limits = self._execution.sources(), self._all_limits()
            for number, most in enumerate(files):
                limits = limits.updated(sources.apply(number), self._limit.maxFiles(most))
            self._limits = limits
            self._look()

    def leave_out(self, numbers: Iterable[int]) -> None:
        """Look for nothing new in the sources of these numbers until the next call; they stay
        where they are. Not for a query that has had no batch: each needs a first place."""
        without = frozenset(numbers)
        with self._lock:
            if without != self._without:
                self._without = without
                self._look()

    def _all_limits(self) -> Any:
        if self._limits is None:
            self._limits = self._execution.uniqueSources()
        return self._limits

    def _look(self) -> None:
        sources, limits = self._execution.sources(), self._all_limits()
        for number in self._without:
            limits = limits.removed(sources.apply(number))
        # Scala's setter of a field; Python cannot write its name after a dot.
        getattr(self._execution, "uniqueSources_$eq")(limits)

    def space_batches(self, seconds: float) -> None:
        """How far apart batches begin from the next one on; 0: one follows the other."""
        self._field("intervalMs").setLong(self._execution.triggerExecutor(), int(seconds * 1000))

    def rest_until_woken(self) -> bool:
        """From its next wait on, look at the inputs when `wake` says so, and not by the time.

        False: its thread has yet to begin, ask again.
        """
        if self._execution.triggerExecutor() is None:
            return False
        # Spark's own clock for tests, which stands until it is moved; a wait on it can be
        # interrupted, as that of a query which is stopped must be.
        clock = java(self._spark, "org.apache.spark.util.ManualClock")(int(time.time() * 1000))
        self._field("clock").set(self._execution.triggerExecutor(), clock)
        self._clock = clock
        return True

    def wake(self) -> None:
        """Have it look at its inputs now; in the middle of a batch, once more behind it."""
        # Beyond any interval. The clock times nothing but these waits.
        self._clock.advance(_DAY_MS)

    def _field(self, name: str) -> Any:
        # A private field: Spark has no method that changes it for a running query.
        field = self._execution.triggerExecutor().getClass().getDeclaredField(name)
        field.setAccessible(True)
        return field


def streamed_paths(rows: DataFrame) -> list[str | None]:
    """What a streaming query over `rows` reads, in the order in which Spark writes it down: the
    path of a table, None for what has none."""
    leaves = items(rows._jdf.queryExecution().analyzed().collectLeaves())
    return [_path_of(leaf) for leaf in leaves if leaf.isStreaming()]


def _path_of(leaf: Any) -> str | None:
    if leaf.nodeName() != "StreamingRelation":
        return None
    path = leaf.dataSource().options().get("path")
    return str(path.get()) if path.isDefined() else None


def collected_rows(rows: DataFrame) -> list[dict[str, Any]]:
    """Rows as `DataFrame.collect` gives them, as plain dicts, in a job of their own.

    The function by which `collect` gathers names the RDD, and Spark looks twice whether a job's
    function can go to workers: each time it writes down the whole lineage, which of a batch with
    joins takes longer than its tasks. This one names nothing. It is no query of its own either, so
    whoever listens to those (`Observation`) learns nothing of it.
    """
    context = rows.sparkSession.sparkContext
    batches = rows._jdf.toArrowBatchRdd()
    python = java(rows.sparkSession, f"{SPARK_API}.python.PythonRDD")
    numbers = list(range(batches.getNumPartitions()))
    served = python.runJob(context._jsc.sc(), batches.toJavaRDD(), numbers)
    schema = to_arrow_schema(rows.schema)
    with _load_from_socket(served, NoOpSerializer()) as parts:
        return [
            row
            for batch in parts
            for row in pa.ipc.read_record_batch(pa.py_buffer(batch), schema).to_pylist()
        ]


# -- plans -----------------------------------------------------------------------------------------


class PlanNode:
    """An operator or expression of Catalyst, the parts of it that we look at."""

    def __init__(self, node: Any) -> None:
        self._node = node

    @property
    def name(self) -> str:
        """Its kind, such as `Filter` or `AttributeReference`."""
        return str(self._node.nodeName())

    @property
    def class_name(self) -> str:
        """The whole name of its class."""
        return str(self._node.getClass().getName())

    @property
    def children(self) -> list[PlanNode]:
        """The nodes below it, of its own kind."""
        return _nodes(self._node.children())

    @property
    def expressions(self) -> list[PlanNode]:
        """Of an operator: the expressions that it computes."""
        return _nodes(self._node.expressions())

    @property
    def grouping(self) -> list[PlanNode]:
        """Of an aggregate: what it groups by."""
        return _nodes(self._node.groupingExpressions())

    @property
    def condition(self) -> PlanNode:
        """Of a filter: what it asks."""
        return PlanNode(self._node.condition())

    @property
    def has_subqueries(self) -> bool:
        """Of an operator: whether it asks a query within itself."""
        return bool(self._node.subqueries().size())

    @property
    def subqueries(self) -> list[PlanNode]:
        """Of an operator: the queries within its expressions."""
        return _nodes(self._node.subqueries())

    @property
    def streaming(self) -> bool:
        """Of an operator: whether anything below it is a stream."""
        return bool(self._node.isStreaming())

    @property
    def view(self) -> str:
        """Of a view: its schema and name."""
        named = self._node.desc().identifier()
        return f"{named.database().get()}.{named.table()}"

    @property
    def output_ids(self) -> set[int]:
        """Of an operator: the ids of its columns."""
        return {column.exprId().id() for column in items(self._node.output())}

    @property
    def referenced_ids(self) -> set[int]:
        """Of an expression: the ids of the columns that it reads."""
        columns, ids = self._node.references().iterator(), set()
        while columns.hasNext():
            ids.add(columns.next().exprId().id())
        return ids

    @property
    def column(self) -> str:
        """Of a column: its name."""
        return str(self._node.name())

    @property
    def sql(self) -> str:
        """Of an expression: its text in SQL."""
        return str(self._node.sql())

    @property
    def function(self) -> str:
        """Of an expression: the name of its function in SQL."""
        return str(self._node.prettyName())

    @property
    def deterministic(self) -> bool:
        """Of an expression: whether it has one value for one row."""
        return bool(self._node.deterministic())

    def walk(self) -> Iterator[PlanNode]:
        """It, and all below it."""
        yield self
        for child in self.children:
            yield from child.walk()


def _nodes(sequence: Any) -> list[PlanNode]:
    return [PlanNode(node) for node in items(sequence)]


def analyzed_plan(rows: DataFrame) -> PlanNode:
    """What Spark makes of a query before it optimises; it shows that to Python in no other way."""
    return PlanNode(rows._jdf.queryExecution().analyzed())


# -- files -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RemoteFile:
    """A file as Hadoop lists it."""

    path: str
    name: str
    size: int
    modified_ms: int


def remote_files(spark: SparkSession, pattern: str) -> Iterator[RemoteFile]:
    """The files that a pattern names by way of Hadoop, at any depth below a folder."""
    root = java(spark, "org.apache.hadoop.fs.Path")(pattern)
    files = root.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    # Hadoop returns null, not an empty list, for a path that is not there.
    for match in files.globStatus(root) or ():
        if not match.isDirectory():
            yield _remote(match)
            continue
        below = files.listFiles(match.getPath(), True)
        while below.hasNext():
            yield _remote(below.next())


def _remote(status: Any) -> RemoteFile:
    path = status.getPath()
    return RemoteFile(
        path.toString(), path.getName(), status.getLen(), status.getModificationTime()
    )


# -- Delta's log -----------------------------------------------------------------------------------


def delta_log(spark: SparkSession, path: str) -> Any:
    """Delta's log of the table at `path`."""
    return java(spark, f"{DELTA}.DeltaLog").forTable(spark._jsparkSession, path)


def checkpoint_table(spark: SparkSession, path: str) -> None:
    """Have Delta write a checkpoint of a table's log now, as it does after many commits."""
    log = delta_log(spark, path)
    log.startTransaction()  # looks for the newest version, which others may have written
    log.checkpoint()


def forget_tables(spark: SparkSession) -> None:
    """Let Delta forget what it knows of all tables, as a new JVM would."""
    java(spark, f"{DELTA}.DeltaLog").clearCache()


class DeltaTransaction:
    """A transaction of the table at `path`, begun on its newest version."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._transaction = delta_log(spark, path).startTransaction()

    def active_files(self, where: str | None = None) -> list[str]:
        """The files of the table as JSON of their `add` actions; `where`: a condition in SQL."""
        return _files(self._transaction.snapshot(), where)

    def commit(self, actions: Iterable[str], user_metadata: str, *, overwrite: bool) -> int:
        """Commit actions, as JSON; the table's new version."""
        action_of = java(self._spark, f"{DELTA}.actions.Action").fromJson
        mode = java(self._spark, "org.apache.spark.sql.SaveMode")
        option = java(self._spark, "scala.Option")
        made = java(self._spark, "java.util.ArrayList")()
        for action in actions:
            made.add(action_of(action))
        none = option.empty()
        write = java(self._spark, f"{DELTA}.DeltaOperations$Write")(
            mode.Overwrite if overwrite else mode.Append,
            none,
            none,
            option.apply(user_metadata),
            *[none] * 5,
        )
        action_seq = (
            java(self._spark, "scala.jdk.javaapi.CollectionConverters").asScala(made).toSeq()
        )
        return int(self._transaction.commit(action_seq, write))


def files_at(spark: SparkSession, path: str, version: int) -> list[str]:
    """The files of a version of a table as JSON of their `add` actions."""
    none = java(spark, "scala.Option").empty()
    return _files(delta_log(spark, path).getSnapshotAt(version, none, none, False), None)


def _files(snapshot: Any, where: str | None) -> list[str]:
    files = snapshot.allFiles()
    return list((files if where is None else files.where(where)).toJSON().collectAsList())


def delta_listing_begins(spark: SparkSession, path: str, file: str) -> bool:
    """Whether Delta's store finds files from `file` on, as each commit and query asks it."""
    where = java(spark, "org.apache.hadoop.fs.Path")(file)
    conf = spark.sparkContext._jsc.hadoopConfiguration()
    return bool(delta_log(spark, path).store().listFrom(where, conf).hasNext())


# -- functions -------------------------------------------------------------------------------------


def functions_of(spark: SparkSession) -> tuple[frozenset[str], frozenset[str]]:
    """Names of a session's built-in functions: of values, and of those that give tables."""
    values, tables = (
        frozenset(function.funcName() for function in items(registry.listFunction()))
        for registry in _registries(spark)
    )
    return values, tables


def keep_functions(spark: SparkSession, values: Iterable[str], tables: Iterable[str]) -> None:
    """Take from a session all built-in functions but these; for good, and from it alone."""
    identifier = java(spark, "org.apache.spark.sql.catalyst.FunctionIdentifier")
    option = java(spark, "scala.Option")
    for registry, kept in zip(_registries(spark), (set(values), set(tables)), strict=True):
        for function in items(registry.listFunction()):
            if function.funcName() not in kept:
                whole = function.funcName(), option.apply("builtin"), option.apply("system")
                registry.dropFunction(identifier(*whole))


def _registries(spark: SparkSession) -> tuple[Any, Any]:
    state = spark._jsparkSession.sessionState()
    return state.functionRegistry(), state.tableFunctionRegistry()
