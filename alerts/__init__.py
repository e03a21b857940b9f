"""Detection: Sigma rules compiled and matched, findings folded to alerts, alerts delivered once.

Imports `enrich`, `ingest` and `infra`; `reporting` and `api` may import it.
"""
