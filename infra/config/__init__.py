"""Settings and secrets: read once by the command, typed, frozen, passed down.

Imports storage and errors; everything above may import it.
"""

from __future__ import annotations

import os

# Before its first model pydantic reads the metadata of every installed package, in search of
# plugins that Headgate has none of: a tenth of a command's start. Who has some sets it.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
