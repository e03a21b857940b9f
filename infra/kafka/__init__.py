"""Kafka: clients, transactions, the broker of demo and tests, authentication, ACLs, topics.

Imports process, config and storage; everything from `infra.spark` up may import it.
"""
