"""Kafka: clients, the broker of demo and tests, authentication, ACLs, configuration of topics.

Imports process, config and storage; everything from `infra.spark` up may import it.
"""
