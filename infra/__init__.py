"""The ground all else stands on: settings, storage, Kafka, Spark, Delta, running jobs.

It knows nothing of logs, rules or reports. Any package may import it; it imports none of them.
"""
