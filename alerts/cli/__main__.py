"""The commands of alerts: `headgate rules`, `alerts`, `verify` and `explain`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from alerts.cli import alerts, explain, verify
from alerts.cli.rulebook import verbs
from infra.config.settings import load
from infra.errors import HeadgateError


def build(subparsers: Any) -> None:
    """Register the commands of this folder with the command line's subparsers."""
    verbs.build(subparsers)
    alerts.build(subparsers)
    verify.build(subparsers)
    explain.build(subparsers)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `rules ...` or `alerts ...` by itself, with the settings of this folder."""
    parser = argparse.ArgumentParser(prog="headgate")
    build(parser.add_subparsers(dest="command", required=True))
    args = parser.parse_args(argv)
    try:
        code: int = args.run(args, load())
    except HeadgateError as error:
        print(f"headgate: {error}", file=sys.stderr)
        return error.exit_code
    return code


if __name__ == "__main__":
    sys.exit(main())
