"""Inventories of assets and users with their history, and which user was seen on a device.

Imports `infra` and tables.
"""
