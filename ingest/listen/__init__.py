"""The listener: syslog and OpenTelemetry logs come in here and go to the topics of sources.

What was read waits in one bounded place (`outbox`) until the broker has it. Sockets know nothing
of Kafka, and Kafka (`kafka_sink`) nothing of sockets.
"""
