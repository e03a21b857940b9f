"""What all of `alerts` speaks of: findings, alerts, entities, levels, ATT&CK. Plain Python.

Imports nothing else of `alerts`.
"""
