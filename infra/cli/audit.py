"""Commands `audit verify` and `audit head`: whether anybody changed what ops.audit says."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from infra.config.settings import Settings
from infra.errors import Fatal, Usage
from infra.process.table_output import add_output_option, print_rows
from infra.streaming.audit_chain import ChainHead, first_fault, head_file, links_of

_LINKS = """
SELECT chain, seq, digest, "at", who, act, target, detail, outcome
FROM ops.audit ORDER BY chain, seq, "at"
"""


def build(commands: Any) -> None:
    """Register the commands."""
    audit = commands.add_parser("audit", help="whether anybody changed what ops.audit says")
    verbs = audit.add_subparsers(dest="verb", required=True)
    checked = verbs.add_parser(
        "verify", help="check the chain; exit 1 and name the first link that does not hold"
    )
    checked.add_argument(
        "--digest",
        help="a digest that 'audit head' printed before and that was kept elsewhere: it must still "
        "be in the chain",
    )
    add_output_option(checked)
    checked.set_defaults(run=_verify)
    head = verbs.add_parser("head", help="print the newest link, to be kept elsewhere")
    add_output_option(head)
    head.set_defaults(run=_head)


def _verify(arguments: argparse.Namespace, settings: Settings) -> int:
    rows = _rows(settings)
    links = list(links_of(rows))
    own = head_file(settings.home).read()
    fault = first_fault(links, {own.chain: own} if own else {})
    if fault is not None:
        raise Fatal(
            f"ops.audit: link {fault.seq} of chain {fault.chain} {fault.what}; what stands from "
            "there on was not written so by the driver"
        )
    if arguments.digest and arguments.digest not in {link.digest for link in links}:
        raise Fatal(
            f"ops.audit: no link has the digest {arguments.digest}: the chain was written anew, or "
            "that link has expired (retention.ops_days)"
        )
    before = len(rows) - len(links)
    if arguments.output != "table":
        print_rows([{"links": len(links), "unlinked": before}], arguments.output)
        return 0
    unlinked = f"; {before} rows are from before there was a chain" if before else ""
    print(f"{len(links)} links hold{unlinked}")
    return 0


def _head(arguments: argparse.Namespace, settings: Settings) -> int:
    head: ChainHead | None = head_file(settings.home).read()
    if head is None:
        raise Usage("there is no chain yet; the driver begins it with the first act")
    if arguments.output == "table":
        print(f"{head.digest}  link {head.seq} of chain {head.chain}")
    else:
        row = {"chain": head.chain, "seq": head.seq, "digest": head.digest}
        print_rows([row], arguments.output)
    # On stderr: a script that keeps stdout gets the link alone.
    print("keep it where who can write the lake cannot: 'audit verify --digest'", file=sys.stderr)
    return 0


def _rows(settings: Settings) -> list[dict[str, Any]]:
    from infra.delta.duckdb_views import AskedViews

    with AskedViews(settings.lake_root, needs=("ops.audit",)) as views:
        return views.rows(_LINKS)
