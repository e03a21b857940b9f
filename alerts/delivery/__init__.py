"""Alerts to Kafka in transactions, to webhooks with retries, and what people ask of them.

Imports lifecycle and domain.
"""
