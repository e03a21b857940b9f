"""The shift of `story` as one that ended some minutes ago; to be imported before it is read."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

BEGAN = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=64)
os.environ["HEADGATE_TESTS_NOON"] = BEGAN.isoformat()
