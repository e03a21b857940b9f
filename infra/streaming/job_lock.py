"""Who may work on a home, and who may run one of its jobs: lock files beside the checkpoints.

`<checkpoints>/<job>/lock` belongs to the process that runs the job. `<checkpoints>/lock` belongs to
all who work on the home together, or to a backup alone.
"""

from __future__ import annotations

from pathlib import Path

from infra.storage.file_lock import ExclusiveLock, LockRefused, SharedLock

LOCK_NAME = "lock"
"""A lock file's name, of a job in its folder and of the home beside these folders."""


def hold_off_backups(checkpoints: Path, who: str) -> SharedLock:
    """The right to work on a home beside others: no backup of it is begun meanwhile.

    `who`: what cannot begin otherwise. Raises `Retryable` while a backup is under way.
    """
    return SharedLock(
        checkpoints / LOCK_NAME,
        lambda holder: (
            f"{who} cannot begin: a backup is under way (process {holder}), and would have a part "
            "of what is written meanwhile; what 'headgate up' or 'headgate run' looks after goes "
            "on by itself when it is done, begin anything else again then"
        ),
    )


def already_runs(folder: Path, job: str) -> LockRefused:
    """Why a job cannot begin, of the process that runs it."""
    return lambda holder: (
        f"job {job} already runs (process {holder}); stop that one first: two drivers "
        f"on one checkpoint ({folder}) would write every batch twice"
    )


class JobLock(ExclusiveLock):
    """The right to run a job, which nobody else runs, and beside which no backup is begun.

    Raises `Taken` or, while a backup is under way, `Retryable`.
    """

    def __init__(self, folder: Path, job: str) -> None:
        self._no_backup = hold_off_backups(folder.parent, f"job {job}")
        try:
            # The home's lock is had by now: a backup cannot begin between the two.
            super().__init__(folder / LOCK_NAME, already_runs(folder, job))
        except BaseException:
            # Else a job that was refused would keep backups away as long as this process lives.
            self._no_backup.release()
            raise

    def release(self) -> None:
        """Give it back; a second call does nothing."""
        super().release()
        self._no_backup.release()
