"""The rules in force: bundled and imported files, their tests, previews, and the store of packs.

Imports compiler, matching and anomaly.
"""
