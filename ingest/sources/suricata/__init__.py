"""Suricata EVE."""
