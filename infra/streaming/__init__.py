"""Streaming queries over Delta and Kafka: the lake, jobs, admission of input, rate control, the
outbox.

Imports `infra.delta` and below. A job's `foreachBatch` is run from here.
"""
