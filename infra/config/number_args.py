"""Numbers as people write them on the command line, each within what it may be."""

from __future__ import annotations

import argparse
from collections.abc import Callable

MOST = 2**31 - 1
"""Of what nobody has more of: rows, alerts, seconds. What counts further with it finds room."""


def whole(least: int = 1, most: int = MOST) -> Callable[[str], int]:
    """Reads a whole number of these bounds; argparse says what is to be written instead."""

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if not least <= number <= most:
            raise argparse.ArgumentTypeError(
                f"'{text}': write a whole number from {least:,} to {most:,}"
            )
        return number

    return read


def port(text: str) -> int:
    """A port; 0 picks a free one where that is offered."""
    return whole(0, 65_535)(text)


def factor(text: str) -> float:
    """A number above 0, or `inf`."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not number > 0:  # no number at all (nan) is not above 0 either
        raise argparse.ArgumentTypeError(f"'{text}': write a number above 0, such as 2.5, or inf")
    return number
