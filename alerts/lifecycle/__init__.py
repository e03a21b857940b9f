"""Findings to alerts: the fold with its state, revisions, suppression, risk, asset context.

Imports domain, rulepack and correlation; `alert_job` runs it.
"""
