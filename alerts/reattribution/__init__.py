"""Corrections: findings whose device turned out to be another one; job `repair`.

Imports lifecycle and `enrich`.
"""
