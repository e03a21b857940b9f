"""Attribution: which device held an address at an instant, how sure that is, over stream and
history.

Imports `enrich.dhcp`.
"""
