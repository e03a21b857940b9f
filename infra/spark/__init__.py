"""The only place that builds a Spark session, and all that touches Spark's private parts.

Imports kafka, checkpoint and what lies below; `infra.delta` and above may import it.
"""
