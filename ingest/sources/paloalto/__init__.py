"""Palo Alto PAN-OS."""
