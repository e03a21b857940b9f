"""Old log files sent to Kafka as if they were written now.

Imports parsing and `infra.kafka`.
"""
