"""Property tests here share two cores with Spark: no deadline for a single example."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("enrich", deadline=None)
settings.load_profile("enrich")
