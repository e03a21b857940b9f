"""Sigma files and our own rule files into a rule pack, or a refusal with its reason.

Imports `alerts.rulepack`; runs on the driver, once a change.
"""
