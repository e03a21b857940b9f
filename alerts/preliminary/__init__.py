"""Preliminary alerts: a finding told as soon as it is committed, and answered by job `alert`.

Decision 0025 says why.
"""
