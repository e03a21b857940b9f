"""What is told after the fact: the ledger, reports, and the certified erasure of a person.

Imports `alerts` and below; nothing imports it but `headgate`.
"""
