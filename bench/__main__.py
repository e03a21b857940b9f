"""`make bench`: run all benchmarks, or one by name."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path

ALL = (
    "sink_cost",
    "files",
    "sources",
    "hostile",
    "footprint",
    "rules",
    "indicators",
    "event_to_alert",
    "preliminary",
    "reference",
    "idle",
    "first_alert",
    "parse_cli",
    "standing",
    "sustained",
    "publish",
    "promote",
    "storm",
    "correlations",
    "catch_up",
    "recovery",
    "day",
    "tracker",
    "lease_growth",
    "demo_start",
    "desk",
    "adhoc",
    "asof_history",
    "event_slice",
    "join",
    "live_attribution",
    "realtime",
    "scale_out",
    "backtest",
    "benign_day",
    "models",
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("--only", choices=ALL, help="one benchmark")
    parser.add_argument(
        "--quick", action="store_true", help="smaller and rougher, for a look: not kept"
    )
    parser.add_argument(
        "--rules", type=Path, metavar="FOLDER",
        help="with --only rules: Sigma rules to run on recorded events, such as your own clone of "
        "public ones; not kept",
    )  # fmt: skip
    arguments = parser.parse_args()
    if arguments.rules is not None and arguments.only != "rules":
        parser.error("--rules goes with --only rules")
    more = {} if arguments.rules is None else {"rules": arguments.rules}
    for name in (arguments.only,) if arguments.only else ALL:
        print(f"== {name}", file=sys.stderr, flush=True)
        report = import_module(f"bench.{name}").run(quick=arguments.quick, **more)
        report.finish(keep=not (arguments.quick or more))
    return 0


if __name__ == "__main__":
    sys.exit(main())
