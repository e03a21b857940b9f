"""Anomaly models: device hours, baselines, training, the store of models, job `models`.

Imports rulepack, domain and `enrich.attribution`.
"""
