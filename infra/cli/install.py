"""`headgate install`: the systemd units of one machine, with its user, folders and program."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infra.config.settings import Settings
from infra.errors import Fatal, Usage
from infra.process.table_output import print_lines
from infra.storage.atomic_files import write_whole

TEMPLATES = Path(__file__).parents[1] / "deploy" / "systemd"
UNITS = ("headgate.target", "headgate.service", "headgate-api.service")
"""What one machine needs: `up` does on schedule what other units are for."""
_HIDDEN = tuple(Path(folder) for folder in ("/home", "/root", "/run/user", "/tmp", "/var/tmp"))
"""What `ProtectHome` and `PrivateTmp` keep from the services."""
_NAME = re.compile(r"[a-z_][a-z0-9_-]{0,30}")
_PLAIN = re.compile(r"/[A-Za-z0-9._/+@-]*")


def build(subparsers: Any) -> None:
    """Add the command; it sets `run`, called with the arguments and the settings."""
    command = subparsers.add_parser(
        "install",
        help="write systemd units for all jobs and the API on this machine",
        description="Writes units that run 'headgate up' and 'headgate api' as a user of their "
        "own, kept from what they do not need, and says what is to be done next. "
        "Nothing is started.",
    )
    command.add_argument("--user", default="headgate", help="account that they run as")
    command.add_argument(
        "--settings",
        type=Path,
        default=Path("/etc/headgate/headgate.toml"),
        metavar="FILE",
        help="settings that they read (default: /etc/headgate/headgate.toml)",
    )
    command.add_argument(
        "--data", type=Path, metavar="FOLDER", help="all that they may write (default: the home)"
    )
    command.add_argument(
        "--program",
        type=Path,
        default=Path(sys.argv[0]).absolute(),
        metavar="FILE",
        help="the command headgate that they run (default: this one)",
    )
    command.add_argument(
        "--jars", type=Path, metavar="FOLDER", help="the Java archives (default: where they are)"
    )
    command.add_argument(
        "--broker", choices=("embedded",), help="let 'up' run a Kafka broker of its own"
    )
    command.add_argument(
        "--unit-folder",
        type=Path,
        default=Path("/etc/systemd/system"),
        metavar="FOLDER",
        help="where the units go (default: /etc/systemd/system)",
    )
    command.add_argument("--force", action="store_true", help="overwrite units that are different")
    command.add_argument("--dry-run", action="store_true", help="print the units, write nothing")
    command.set_defaults(run=run_install)


def run_install(args: argparse.Namespace, settings: Settings) -> int:
    """Write or print the units; 1 when systemd finds a fault in them."""
    made = units(args, settings)
    if args.dry_run:
        for name, text in made.items():
            print_lines([f"# {args.unit_folder / name}", *text.splitlines(), ""])
        return 0
    faults = verified(made)
    if faults:
        print("\n".join(faults), file=sys.stderr)
        return 1
    _write(args.unit_folder, made, force=args.force)
    print_lines([str(args.unit_folder / name) for name in made])
    print("\n".join(["Next, as root:", *next_steps(args, settings)]), file=sys.stderr)
    return 0


def units(args: argparse.Namespace, settings: Settings) -> dict[str, str]:
    """The text of each unit by its file name.

    Raises `Usage` for a user or a path that a unit cannot hold or that its service could not see.
    """
    from infra.process import java_jars

    data = (args.data or settings.home).absolute()
    jars = (args.jars or java_jars.jars_folder()).absolute()
    paths = {"--settings": args.settings, "--data": data, "--program": args.program,
             "--jars": jars}  # fmt: skip
    _require_sound(args.user, paths)
    for path in _written(settings):
        if not path.is_relative_to(data):
            raise Usage(f"--data {data}: {path}, which the settings name, is not in it")
    up = "up --broker embedded" if args.broker else "up"
    changes = {
        r"^User=.*$": f"User={args.user}",
        r"^Group=.*$": f"Group={args.user}",
        r"^Environment=HEADGATE_CONFIG=.*$": f"Environment=HEADGATE_CONFIG={args.settings}",
        r"^Environment=HEADGATE_JARS=.*$": f"Environment=HEADGATE_JARS={jars}",
        r"^EnvironmentFile=.*$": f"EnvironmentFile=-{args.settings.parent}/environment",
        r"^ReadWritePaths=.*$": f"ReadWritePaths={data}",
        r"^ExecStart=\S+ up$": f"ExecStart={args.program} {up}",
        r"^ExecStart=\S+ api$": f"ExecStart={args.program} api",
    }
    return {name: _changed((TEMPLATES / name).read_text("utf-8"), changes) for name in UNITS}


def _written(settings: Settings) -> list[Path]:
    """Folders of this machine that jobs write into."""
    return [settings.home.absolute(), settings.checkpoint_root, settings.lake_side]


def _changed(text: str, changes: Mapping[str, str]) -> str:
    for pattern, line in changes.items():
        # No path has a backslash, which would mean something here (`_require_sound`).
        text = re.sub(pattern, line, text, flags=re.M)
    return text


def _require_sound(user: str, paths: Mapping[str, Path]) -> None:
    if not _NAME.fullmatch(user) or user == "root":
        raise Usage(f"--user {user}: an account of its own, such as headgate, and never root")
    for option, path in paths.items():
        if not path.is_absolute() or not _PLAIN.fullmatch(str(path)):
            raise Usage(f"{option} {path}: an absolute path of plain letters, for a unit")
        if any(path.is_relative_to(hidden) for hidden in _HIDDEN):
            raise Usage(
                f"{option} {path}: the services see nothing below {path.parents[-2]} "
                "(ProtectHome, PrivateTmp); take a place such as /opt, /etc or /var/lib"
            )


def verified(made: Mapping[str, str]) -> list[str]:
    """What `systemd-analyze verify` says against the units; nothing where it is not there."""
    program = shutil.which("systemd-analyze")
    if program is None:
        print("systemd-analyze is not here: the units were not checked", file=sys.stderr)
        return []
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in made]
        for file in files:
            file.write_text(made[file.name], "utf-8")
        done = subprocess.run(
            [program, "verify", *map(str, files)],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    # It tells of all units of the machine; those of others are none of our faults.
    return (
        [line for line in done.stderr.splitlines() if "headgate" in line] if done.returncode else []
    )


def _write(folder: Path, made: Mapping[str, str], *, force: bool) -> None:
    # All are looked at before the first is written.
    for name, text in made.items():
        file = folder / name
        if file.exists() and file.read_text("utf-8") != text and not force:
            raise Usage(f"{file} is there and different; look at it, then --force overwrites it")
    try:
        for name, text in made.items():
            write_whole(folder / name, text)
            (folder / name).chmod(0o644)
    except OSError as error:
        raise Fatal(f"{folder}: cannot be written ({error.strerror}); run it as root") from error


def next_steps(args: argparse.Namespace, settings: Settings) -> list[str]:
    """Commands that are left to a person."""
    data = (args.data or settings.home).absolute()
    return [
        f"  useradd --system --home-dir {data} --shell /usr/sbin/nologin {args.user}",
        f"  install -d -o {args.user} -g {args.user} -m 0700 {data}",
        "  systemctl daemon-reload",
        "  systemctl enable --now headgate.target headgate.service headgate-api.service",
    ]
