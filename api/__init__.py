"""The REST API: questions over the tables, bounded and audited.

Imports `alerts` and below; nothing imports it but `headgate`.
"""
