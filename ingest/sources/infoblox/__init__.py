"""Infoblox NIOS."""
