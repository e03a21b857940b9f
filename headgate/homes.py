"""Whether a home has a lake, and where there are others."""

from __future__ import annotations

from pathlib import Path

from infra.config.settings import Settings
from infra.errors import Usage
from infra.storage.paths import there


def require_lake(settings: Settings) -> None:
    """Raises `Usage` where there is no lake, naming lakes that lie near; makes nothing."""
    root = settings.lake_root
    if not there(root):
        near = [str(folder) for folder in _homes_near(settings.home) if folder != settings.home]
        hint = f"; there is one in {' and in '.join(near)}" if near else ""
        raise Usage(
            f"{root}: there is no lake here{hint}; "
            "give headgate.open(home=...), set HEADGATE_HOME, or start the jobs with 'headgate up'"
        )


def _homes_near(home: Path) -> list[Path]:
    """Homes with a lake that a person who looked at `home` may mean."""
    here = home.absolute()
    # Few places near by: a search of the whole disk would keep a person waiting for an error.
    folders = [here, *here.parents[:3], *Path.cwd().parents[:2], Path.cwd()]
    inside = ("", "demo", ".headgate", ".headgate/demo")
    places = [folder / name for folder in folders for name in inside]
    return list(dict.fromkeys(p for p in places if (p / "lake").is_dir()))
