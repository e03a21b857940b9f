"""Read alerts from Kafka: `python -m alerts.delivery.example_consumer 127.0.0.1:9092 alerts`.

`read_committed` hides what a transaction has not finished. Keep the highest
revision of each `alert_id`; a message that was handled before a restart may
come again, so handling it twice must do no harm.
"""

import json
import sys

from confluent_kafka import Consumer, KafkaException


def main(bootstrap: str, topic: str) -> None:
    """Print each revision on one line until interrupted."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "example-consumer",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    try:
        while True:
            message = consumer.poll(1.0)
            if message is None:
                continue
            if message.error():
                raise KafkaException(message.error())
            alert = json.loads(message.value() or b"{}")
            print(
                alert["severity"],
                # Messages of before 1.1 have the former name alone.
                alert.get("change_type") or alert["activity"],
                alert["alert_id"],
                alert["revision"],
                alert["title"],
                alert["attribution"]["status"],
                sep="  ",
                flush=True,
            )
    except KeyboardInterrupt:
        consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
