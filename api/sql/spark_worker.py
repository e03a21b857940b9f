"""The process with the Spark session for statements that DuckDB would answer otherwise.

It speaks as `api.sql.worker` does: one JSON line comes in per statement, one goes out when Spark
has read it, one with the answer. It is begun with the first such statement and ended when none
came for a while, or at any moment.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from api.sql.arrow_answer import cut_stream
from api.sql.spark_guard import as_question, only_listed_functions, require_readable
from api.sql.spark_lake import SparkLake
from api.sql.worker import (
    StatementRefused,
    cut_rows,
    fault_of,
    for_caller,
    leave_with_parent,
    plain,
    require_few,
    say,
    told_meanwhile,
)
from infra.config.settings import Settings, load
from infra.errors import HeadgateError, Usage
from infra.process.priority import stand_back
from infra.spark.session import session

_UNANSWERABLE = (
    T.VariantType, T.CalendarIntervalType, T.DayTimeIntervalType, T.YearMonthIntervalType
)  # fmt: skip
"""Types that JSON and Arrow's readers have no common form for."""
_MOST_RESULT = "spark.driver.maxResultSize"


def serve_spark(requests: TextIO, answers: TextIO) -> None:
    """Answer until the input ends. The first line sets the worker up."""
    # Progress is told from a thread of its own, and a line must not begin inside another.
    turn = threading.Lock()

    def tell(reply: dict[str, Any]) -> None:
        with turn:
            say(answers, reply)

    leave_with_parent(os.getppid())
    # A core file would put what was read from the lake on disk.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    setup = json.loads(requests.readline())
    # Before the JVM begins, which takes it over.
    stand_back(setup["nice"])
    try:
        spark = _begin(setup)
    except HeadgateError as error:  # such as a missing Java
        say(answers, {"unready": str(error)})
        return
    lake = SparkLake(spark, setup["lake"])
    tell({"ready": True})
    for line in requests:
        asked = json.loads(line)
        read = _answered(partial(_read, spark, lake, asked))
        answer = read.pop("answer", None)
        # Told apart from the answer, since reading and running have time limits of their own.
        tell(read)
        if answer is not None:
            tell(for_caller(_answered(partial(_run, spark, answer, asked, tell)), asked))


def _begin(setup: Mapping[str, Any]) -> SparkSession:
    spark = session(_settings(setup), "headgate statements")
    # What a query says of itself would hold the log up, and has texts from it.
    spark.sparkContext.setLogLevel("OFF")
    # Else a path in backquotes is a table.
    spark.conf.set("spark.sql.runSQLOnFiles", "false")
    # What Parquet's other readers know as an instant.
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    only_listed_functions(spark)
    # The first answer loads what all others need: that is part of the start, and no caller's time.
    spark.sql(as_question("SELECT 1")).toArrow()
    return spark


def _settings(setup: Mapping[str, Any]) -> Settings:
    # Its own folder as home: it leaves with the process, and holds no secret.
    return load(
        home=str(Path.home()),
        lake=setup["lake_root"],
        spark={
            "driver_memory": setup["memory"],
            "conf": {_MOST_RESULT: "256m", "spark.cleaner.periodicGC.interval": "5min"},
        },
    )


def _read(spark: SparkSession, lake: SparkLake, asked: Mapping[str, Any]) -> dict[str, Any]:
    sql, params = asked["sql"], asked["params"] or {}
    for name in params:
        # A value that nothing uses is mostly a misspelt name.
        if not re.search(rf":{re.escape(name)}\b", sql):
            raise Usage(f"the statement has no parameter :{name}; remove it from params")
    lake.show(sql, asked.get("only_rows"))
    answer = spark.sql(as_question(sql), params)
    require_readable(answer, asked.get("only_tables"))
    for field in answer.schema:
        if isinstance(field.dataType, _UNANSWERABLE):
            raise StatementRefused(
                f"column {field.name} is {field.dataType.simpleString()}, which cannot be answered "
                "here; cast it to a string"
            )
    return {"read": True, "answer": answer}


def _run(
    spark: SparkSession,
    answer: DataFrame,
    asked: Mapping[str, Any],
    tell: Callable[[dict[str, Any]], None],
) -> dict[str, Any]:
    began = time.monotonic()
    most = asked["max_rows"]
    columns = [{"name": field.name, "type": _type(field.dataType)} for field in answer.schema]
    if asked.get("into"):
        with told_meanwhile(lambda percent: tell({"progress": percent}), _progress(spark)):
            reply = {"rows": _write(answer, most, Path(asked["into"])), "truncated_by": None}
    else:
        # One row more than asked tells a cut answer from a whole one.
        table = answer.limit(most + 1 if most else 0).toArrow()
        if asked.get("arrow"):
            reply = cut_stream(table.schema, table.to_batches(), most, asked["max_bytes"])
        else:
            reply = cut_rows(_rows(table, answer.schema), most, asked["max_bytes"])
    return {"columns": columns, **reply, "elapsed_ms": round((time.monotonic() - began) * 1000, 1)}


def _rows(table: pa.Table, schema: T.StructType) -> Iterator[list[Any]]:
    kinds = [field.dataType for field in schema]
    for batch in table.to_batches():
        for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield [_json(value, kind) for value, kind in zip(values, kinds, strict=True)]


def _json(value: Any, kind: T.DataType) -> Any:
    if value is None:
        return None
    if isinstance(kind, T.MapType):  # Arrow has pairs
        return {str(plain(key)): _json(each, kind.valueType) for key, each in value}
    if isinstance(kind, T.ArrayType):
        return [_json(each, kind.elementType) for each in value]
    if isinstance(kind, T.StructType):
        return {field.name: _json(value[field.name], field.dataType) for field in kind}
    return plain(value)


def _type(kind: T.DataType) -> str:
    """A type as answers of DuckDB tell it: without what is inside a struct or a map."""
    if isinstance(kind, T.ArrayType):
        return f"array<{_type(kind.elementType)}>"
    if isinstance(kind, (T.StructType, T.MapType)):
        return kind.typeName()
    return kind.simpleString()


def _write(answer: DataFrame, most: int, into: Path) -> int:
    """Write an answer into one Parquet file; its rows. Refused where it has more than `most`."""
    beside = into.with_suffix(".parts")
    try:
        answer.limit(most + 1).coalesce(1).write.mode("overwrite").parquet(str(beside))
        (part,) = beside.glob("part-*.parquet")
        rows = int(pq.read_metadata(part).num_rows)
        require_few(rows, most)
        part.replace(into)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return rows


def _progress(spark: SparkSession) -> Callable[[], float]:
    """How many tasks of the stages begun so far are done, in percent."""
    tracker = spark.sparkContext.statusTracker()
    tasks: dict[int, tuple[int, int]] = {}

    def done() -> float:
        for stage in tracker.getActiveStageIds():
            if (known := tracker.getStageInfo(stage)) is not None:
                tasks[stage] = known.numCompletedTasks, known.numTasks
        every = sum(of for _, of in tasks.values())
        return round(100 * sum(through for through, _ in tasks.values()) / max(every, 1), 1)

    return done


def _answered(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a piece of work gives, or what its error is to the user."""
    try:
        return work()
    except (StatementRefused, Usage) as error:
        return {"refused": str(error)}
    except (AnalysisException, ParseException) as error:
        return {"refused": _sentence(error)}
    except PySparkException as error:
        sentence = _sentence(error)
        return {"limit": "memory"} if _MOST_RESULT in sentence else {"failed": sentence}
    except (Py4JError, ConnectionError):
        # The JVM is gone, mostly for want of memory: who asked learns it from our end.
        os._exit(1)
    except Exception as error:
        return fault_of(error)


def _sentence(error: PySparkException) -> str:
    """What Spark says, without places in the text that we put around, and names that are ours."""
    first = str(error).strip().splitlines()[0]
    return re.sub(r";? ?\(?line \d+,? pos \d+\)?;?", "", first).replace("`lake_", "`").strip()


if __name__ == "__main__":
    serve_spark(sys.stdin, sys.stdout)
