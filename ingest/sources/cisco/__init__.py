"""Cisco ASA and Firepower (FTD)."""
