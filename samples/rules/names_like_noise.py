"""
title: Names that read like noise
name: names_like_noise
id: 7b0c6f0e-3f0a-4f2b-9a0b-3d9c1b8a5f03
status: experimental
description: >
  One address asked, within an hour, for many different names whose first label is long and has
  nearly as many different characters as letters: names made by a program.
level: medium
tags: [attack.command-and-control, attack.t1568.002]
falsepositives:
  - Content networks and telemetry that number their hosts.
window: 1h
group-by: [scope, src_ip]
headgate:
  runbook: Look at the names, and at what the device runs.
  tests:
    match:
      - - event: {class_uid: 4003, src_ip: 10.0.0.5, scope: default}
          times: 25
          vary: {query.hostname: "q7{n}xk2vbd9wm4tz8fj.example"}
    no_match:
      - - event: {class_uid: 4003, src_ip: 10.0.0.5, scope: default}
          times: 25
          vary: {query.hostname: "mail{n}.example"}
"""

from math import log2

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

NAMES = 20
LETTERS = 14
BITS = 3.2


@F.udf("double")
def entropy(text):  # Spark takes annotations for another kind of UDF
    """Bits a character of a text carries; None for none."""
    if not text:
        return None
    shares = [text.count(letter) / len(text) for letter in set(text)]
    return -sum(share * log2(share) for share in shares)


def rule(events: DataFrame) -> DataFrame:
    """Addresses with at least `NAMES` names like noise in an hour."""
    label = F.substring_index("query.hostname", ".", 1)
    asked = events.where("class_uid = 4003 AND src_ip IS NOT NULL").withColumn("label", label)
    noise = asked.where((F.length("label") >= LETTERS) & (entropy("label") >= BITS))
    found = noise.groupBy(F.window("time", "1 hour"), "scope", "src_ip").agg(
        F.countDistinct("query.hostname").alias("names"),
        F.min("time").alias("time"),
        F.slice(F.sort_array(F.collect_set("query.hostname")), 1, 5).alias("some"),
    )
    return found.where(F.col("names") >= NAMES)
