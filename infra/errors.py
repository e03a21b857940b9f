"""Errors a person can act on. Each names the thing, the value and the remedy."""

from __future__ import annotations


class HeadgateError(Exception):
    """Base of all our errors. The command prints `str(error)` and no stack trace."""

    exit_code = 1


class Fatal(HeadgateError):
    """A retry cannot help; a person has to change something first."""


class Retryable(HeadgateError):
    """The same call may succeed later (a broker that is away, a disk that is full)."""


class NoLake(HeadgateError):
    """No lake lies where one was looked for; the command line then says what lies near."""


class NoLakeHere(NoLake, Fatal):
    """The same where a person has to name another place, or to start the jobs first."""


class NoLakeYet(NoLake, Retryable):
    """The same where the one who asks may wait for it."""


class Usage(Fatal):
    """The command was called wrongly."""

    exit_code = 2


class NoSuch(Usage):
    """There is nothing of the name that was given, as a rule, a pack or a key."""
