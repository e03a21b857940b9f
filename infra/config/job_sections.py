"""Settings of the jobs, of what they aim at, and of maintenance and retention."""

from __future__ import annotations

from pydantic import Field, field_validator

from infra.config.sections import Section


class JobSettings(Section):
    """How the streaming jobs pace themselves."""

    ingest_trigger_seconds: float = Field(1.0, ge=0, description="pause between ingest batches")
    sessions_trigger_seconds: float = Field(3.0, ge=0, description="pause between session batches")
    alert_trigger_seconds: float = Field(1.0, ge=0, description="pause between alert batches")
    repair_trigger_seconds: float = Field(30.0, ge=0, description="pause between repair batches")
    repair_minutes: float = Field(
        60, ge=0, description="how often job repair mends what the stream cannot; 0: never"
    )
    files_trigger_seconds: float = Field(
        5.0, gt=0, description="pause between two looks into the folders"
    )
    models_trigger_seconds: float = Field(
        60.0, gt=0, description="pause between two looks at what devices did, for rules of models"
    )
    max_offsets_per_batch: int = Field(
        1_000_000,
        gt=0,
        description="most Kafka messages one ingest batch takes, and most rows that one of a job "
        "that reads tables takes, whatever was learned",
    )
    adaptive: bool = Field(
        True,
        description="jobs take small batches while they keep up, large ones to catch up, and whole "
        "commits of the tables they read",
    )
    least_offsets_per_batch: int = Field(
        1_000, gt=0, description="a cap is not set below this while it keeps to the memory"
    )
    steady_batch_seconds: float = Field(
        3.0,
        gt=0,
        description="longest batch while a job keeps up (of jobs that rest for longer, half of "
        "their pause); shorter: less delay",
    )
    behind_batch_seconds: float = Field(
        30.0,
        gt=0,
        description="longest batch while a job catches up; see docs/explanation/latency.md",
    )
    batch_memory_mb: int = Field(
        512,
        gt=0,
        description="by how much Python workers may grow with an ingest batch, and how much the "
        "rows of any other batch may take in memory",
    )
    session_buckets: int = Field(16, gt=0, description="keys of the session state")
    alert_buckets: int = Field(8, gt=0, description="keys of the alert state")
    allowed_lateness_seconds: int = Field(
        600, gt=0, description="how late a DHCP line may be and still be put in its place"
    )
    clock_ahead_seconds: dict[str, float] = Field(
        default_factory=dict,
        description="DHCP servers whose clock is wrong: log host, seconds it is ahead (-: behind)",
    )
    watermark_seconds: int = Field(5, ge=0, description="how late a finding may reach the join")
    wait_seconds: int = Field(
        20, gt=0, description="how long a finding waits for a lease before 'none' is said"
    )
    correct_seconds: int = Field(
        3600, gt=0, description="how long the repair job keeps findings to correct them"
    )
    max_batch_failures: int = Field(
        6,
        gt=0,
        description="a batch that fails so often by its own fault stops its job; so do twice as "
        "many ends of the driver in the middle of it",
    )
    attributed_classes: tuple[int, ...] = Field(
        (),
        description="OCSF classes whose events are attributed as they come, into "
        "gold.attributed_event, such as 3002 (authentication); all others when they are asked for",
    )
    rollup_trigger_seconds: float = Field(
        60.0, ge=0, description="pause between batches of rollup and logins; 0: `up` runs neither"
    )
    rollup_allowed_lateness_seconds: int = Field(
        1800, gt=0, description="how late an event may come and still be counted as it comes"
    )
    rollup_check_minutes: float = Field(
        60, ge=0, description="how often counts are compared with the events; 0: never"
    )
    login_gap_minutes: int = Field(30, gt=0, description="a longer pause ends a session of logins")
    quality_minutes: float = Field(
        60, ge=0, description="how often the data is checked beside the jobs; 0: never"
    )
    ledger_minutes: float = Field(
        60, ge=0, description="how often the ledger is compared with broker and tables; 0: never"
    )
    retrain_days: float = Field(
        7, ge=0, description="age at which a model in force is trained again; 0: never by itself"
    )
    silent_minutes: int = Field(
        10, gt=0, description="a source is not called silent before so long, whatever its habit"
    )
    max_lease_seconds: int = Field(
        86400,
        gt=0,
        description="longest span one segment covers, so how long job alert holds one; longer "
        "leases come in pieces",
    )


class TargetSettings(Section):
    """Seconds within which a job must finish a batch, or see that there is nothing to do.

    A job that does not is named by `headgate status`, and the API is not ready.
    """

    ingest: float = Field(60, gt=0, description="job ingest")
    files: float = Field(60, gt=0, description="job files")
    sessions: float = Field(60, gt=0, description="job sessions")
    alert: float = Field(60, gt=0, description="job alert")
    repair: float = Field(180, gt=0, description="job repair, which rests 30 s between batches")
    others: float = Field(300, gt=0, description="any job not named here")
    alarm_seconds: float = Field(
        600,
        gt=0,
        description="a job that misses its target for so long has an alert of its own on the topic",
    )

    def of(self, job: str) -> float:
        """The target of a job, in seconds."""
        seconds: float = getattr(self, job, self.others)
        return seconds


class MaintenanceSettings(Section):
    """Keeping tables small and quick beside the jobs."""

    minutes: float = Field(60, ge=0, description="how often it runs beside the jobs; 0: never")
    log_minutes: float = Field(
        10,
        ge=1,
        description="how long commits that every job has read stay in a table's Delta log; more "
        "only for streams of other programs, since each batch lists the whole log",
    )
    file_mb: int = Field(64, gt=0, description="small files become files of about this size")
    keep_hours: float = Field(
        168,
        ge=1,
        le=720,
        description="how long former versions of a table can be read, 720 at most: as long as its "
        "commits are kept; a batch's files may wait as long for their commit",
    )


class RetentionSettings(Section):
    """How long data is kept, by arrival; what is older is taken out by maintenance."""

    bronze_days: float = Field(0, ge=0, description="raw records; 0: for ever")
    silver_days: float = Field(
        0, ge=0, description="events, also with their device, and hours of devices; 0: for ever"
    )
    gold_days: float = Field(
        0,
        ge=0,
        description="findings, what they were attributed to, alerts, sessions of logins; 31 at "
        "least: so far back alerts are corrected and published; 0: for ever",
    )
    ops_days: float = Field(
        0, ge=0, description="who asked what, results of checks, costs of rules; 0: for ever"
    )
    ledger_days: float = Field(400, ge=0, description="what each batch read and wrote; 0: for ever")
    sources: dict[str, float] = Field(
        default_factory=dict,
        description="days by source or family, in bronze and silver; the shorter one counts",
    )

    @field_validator("sources")
    @classmethod
    def _days(cls, sources: dict[str, float]) -> dict[str, float]:
        for name, days in sources.items():
            message = f"{name} = {days:g} is no number of days"
            if not 0 <= days <= 100_000:  # nor is what no date can be reckoned from
                raise ValueError(f"{message}; 0 keeps it as long as its layer, whose 0 is for ever")
        return sources

    @field_validator("gold_days")
    @classmethod
    def _not_too_short(cls, days: float) -> float:
        if 0 < days < 31:
            raise ValueError("is too short: at least 31, or 0 to keep alerts for ever")
        return days
