"""Committing files to a Delta table that Spark did not write, through Delta's own transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import SparkSession

from infra.parquet import DataFile


class AlreadyCommitted(Exception):
    """Delta has this application's version of the table, or a newer one."""


def commit(
    spark: SparkSession,
    path: str,
    files: Sequence[DataFile],
    user_metadata: str,
    txn: tuple[str, int] | None = None,
) -> int:
    """Append `files` to the table at `path` in one commit; its version.

    `txn`: an application's name and version, which Delta then keeps and refuses a
    second time (`AlreadyCommitted`). Delta checks concurrent changes of the table's
    schema and protocol, and writes its checkpoints, as after a write of its own.
    """
    jvm: Any = spark._jvm
    delta = jvm.org.apache.spark.sql.delta
    session = spark._jsparkSession
    transaction = delta.DeltaLog.forTable(session, path).startTransaction()
    actions = jvm.java.util.ArrayList()
    if txn is not None:
        name, version = txn
        if transaction.txnVersion(name) >= version:
            raise AlreadyCommitted(name)
        updated = jvm.scala.Option.empty()
        actions.add(delta.actions.SetTransaction(name, version, updated))
    for file in files:
        actions.add(delta.actions.Action.fromJson(file.action()))
    none = jvm.scala.Option.empty()
    write = getattr(delta, "DeltaOperations$Write")(
        jvm.org.apache.spark.sql.SaveMode.Append,
        none,
        none,
        jvm.scala.Option.apply(user_metadata),
        none,
        none,
        none,
        none,
        none,
    )
    sequence = jvm.scala.jdk.javaapi.CollectionConverters.asScala(actions).toSeq()
    return int(transaction.commit(sequence, write))
