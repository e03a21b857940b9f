"""Indicator lists: reading the formats they come in.

Imports `alerts.rulepack`.
"""
