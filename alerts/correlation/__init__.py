"""Correlations over findings: counts, distinct values, order in time, first seen; state by bucket.

Imports `alerts.rulepack` and `alerts.domain`.
"""
