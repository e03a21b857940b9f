"""The rule pack: compiled rules as data with a content hash, and what they are made of.

Imports `alerts.domain`; compiler, matcher and stores build on it.
"""
