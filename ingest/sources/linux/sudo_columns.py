"""How sudo's lines are worded, for reading those alike at once."""

from __future__ import annotations

from ingest.sources.shared.alike_lines import USER, alike_reader

_USER = rf"(?P<user>{USER})"

read_sudo = alike_reader(
    "sudo",
    # A command may hold anything, so all that follows the name is compared.
    rf"(){_USER}( : .*)",
    rf"(pam_unix\(sudo(?:-i)?:session\): session (?:opened|closed) for user ){_USER}"
    r"((?:\(.*| .*)?)",
)
"""The events of those of `records` that are worded as others, as in `Source.columns`."""
