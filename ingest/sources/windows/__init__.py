"""Windows event logs: one core for every way their events are written.

Readers (`flat`, `beats`, `objects`, `xml`) make a `Logged` of a record; `build` makes
its OCSF event by the tables of the providers (`security`, `sysmon`, ...).
"""

from __future__ import annotations

from ingest.sources.windows.build import event_of
from ingest.sources.windows.xml import event_of_xml

__all__ = ["event_of", "event_of_xml"]
