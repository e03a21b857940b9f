"""Whether a rule can fire: its events made in the product's own form, parsed and matched."""

from __future__ import annotations
