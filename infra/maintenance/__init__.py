"""Maintenance beside running jobs: compaction, retention, what holds it back, backup and restore.

Imports `infra.runtime` and below.
"""
