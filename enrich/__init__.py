"""Who held which address when, which asset and user that was, and counts over time.

Imports `ingest` and `infra`; `alerts` and above may import it.
"""
