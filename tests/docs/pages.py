"""The pages of the documentation and what is in them: links, headings, blocks of code, names."""

from __future__ import annotations

import re
import subprocess
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
HOW_TO = sorted((DOCS / "how-to").rglob("*.md"))
TUTORIALS = sorted((DOCS / "tutorials").rglob("*.md"))
HISTORY = ROOT / "CHANGELOG.md"
UPGRADE = DOCS / "how-to" / "upgrade.md"
"""With the changelog the only page that may use names which are gone."""
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    ROOT / "samples/NOTICE.md",
    *sorted(DOCS.rglob("*.md")),
]
DECISIONS = sorted((DOCS / "explanation" / "decisions").glob("*.md"))
CURRENT = [page for page in PAGES if page not in (HISTORY, UPGRADE)]

_BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.M | re.S)


@dataclass(frozen=True)
class Block:
    """A block of code and the language it is marked with."""

    language: str
    text: str


def name_of(page: Path) -> str:
    """A page as a test's id."""
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of a page in order, also those inside of lists."""
    for match in _BLOCK.finditer(page.read_text("utf-8")):
        yield Block(match[2], textwrap.dedent(match[3]))


def words(page: Path) -> int:
    """How many words a page has, its code too; marks of tables and lists are none."""
    return sum(1 for token in page.read_text("utf-8").split() if re.search(r"\w", token))


def prose(page: Path) -> str:
    """The page without its blocks of code."""
    return _BLOCK.sub("", page.read_text("utf-8"))


def headings(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", prose(page), re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def code_spans(page: Path) -> set[str]:
    """What stands between single backticks."""
    return set(re.findall(r"`([^`\n]+)`", prose(page)))


def tracked() -> list[Path]:
    """Files of the repository, also those not committed yet."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [path for name in names.split("\0") if name and (path := ROOT / name).is_file()]
