"""Fortinet FortiGate."""
