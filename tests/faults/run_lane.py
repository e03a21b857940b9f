"""The lane as `headgate up` runs it, over topics of a test's own, until killed.

python -m tests.faults.run_lane HOME BOOTSTRAP
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from alerts.preliminary.consumer_lane import run_lane
from infra.config.settings import load
from tests.faults.early_outbox import topics

if __name__ == "__main__":
    home, bootstrap = Path(sys.argv[1]), sys.argv[2]
    own = {"topic_prefix": f"{home.name}.raw.", "tick_topic": f"{home.name}.tick"}
    kafka = {"bootstrap": bootstrap, **topics(home.name), **own}
    run_lane(load(home=home, kafka=kafka, alerts={"preliminary_by": "lane"}), threading.Event())
