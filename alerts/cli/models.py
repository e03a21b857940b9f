"""The command `headgate models`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from alerts.anomaly.store import ModelHeader, ModelStore
from alerts.cli.output import since_when, tell_refused_models
from alerts.compiler.model_rule_files import Models, ModelSource
from alerts.rulebook.rule_store import model_rules, recompile
from alerts.rulepack.locations import store_folder
from infra.config.settings import Settings
from infra.errors import Usage
from infra.process.table_output import WIDE, add_output_option, print_document, print_rows
from infra.process.text_output import printable

if TYPE_CHECKING:
    from infra.streaming.lake import Lake

_SPAN = "28d"
"""History taken when nobody says: four weeks, so each hour of the week came four times."""


def build(subparsers: Any) -> None:
    """Register `models` with the command line's subparsers."""
    models = subparsers.add_parser("models", help="anomaly detectors: train, compare, put in force")
    verbs = models.add_subparsers(dest="verb", required=True)

    trained = verbs.add_parser("train", help="train a rule's model on history, and put it in force")
    _named(trained)
    _span(trained, "history to learn from")
    trained.add_argument(
        "--keep", action="store_true", help="only keep it; `models use` puts it in force"
    )
    _output(trained, train_model)

    again = verbs.add_parser(
        "retrain", help="note how models drift; train again those older than jobs.retrain_days"
    )
    _span(again, "history to learn from")
    again.set_defaults(run=retrain_models)

    listed = verbs.add_parser("list", help="rules of kind model, and the model each runs with")
    _output(listed, list_models, WIDE)

    shown = verbs.add_parser("show", help="what a rule's models were trained on, newest first")
    shown.add_argument("rule", metavar="NAME", help="id or name of the rule, or a model's hash")
    _output(shown, show_models)

    used = verbs.add_parser("use", help="let a rule run with a model that was trained before")
    used.add_argument("rule", metavar="NAME", help="id or name of the rule")
    used.add_argument("model", metavar="HASH", help="the model, or the first digits of its hash")
    used.set_defaults(run=use_model)

    drifted = verbs.add_parser("drift", help="whether what a model judges is still what it learned")
    drifted.add_argument("rule", metavar="NAME", nargs="?", help="id or name (every rule)")
    _span(drifted, "judged hours", "7d")
    _output(drifted, drift_models)

    tried = verbs.add_parser("backtest", help="what a rule finds in history; nothing is kept")
    _named(tried)
    _span(tried, "history to judge")
    tried.add_argument("--model", metavar="HASH", help="another model than the one in force")
    _output(tried, backtest_model)


def _named(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("rule", metavar="NAME|FILE", help="id or name, or the file of a draft")


def _span(parser: argparse.ArgumentParser, what: str, default: str = _SPAN) -> None:
    parser.add_argument(
        "--from", dest="since", default=default, help=f"{what}: an instant, or 7d, 24h ({default})"
    )
    parser.add_argument("--to", dest="until", help="up to then (default: now)")


def _output(parser: argparse.ArgumentParser, run: Any, *more: str) -> None:
    add_output_option(parser, *more)
    parser.set_defaults(run=run)


def list_models(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate models list`: exit code 1 when a rule is refused."""
    model_rule_set = model_rules(settings)
    store = ModelStore(store_folder(settings))
    rows = []
    for source in model_rule_set.sources.values():
        rule = source.rule
        header = store.header(rule.model) if rule.model else None
        rows.append(
            {
                "id": rule.id,
                "name": rule.name,
                "level": rule.level,
                "state": _state_of(source),
                "model": rule.model or None,
                "trained_at": header.trained_at.isoformat() if header else None,
                "devices": header.devices if header else None,
                "threshold": rule.threshold,
                "title": rule.title,
            }
        )
    brief = [name for name in rows[0] if name != "id"] if rows else ()
    print_rows(rows, args.output, brief=brief)
    return tell_refused_models(model_rule_set.refused)


def _state_of(source: ModelSource) -> str:
    """Whether a rule runs; a word to what is to be done where it does not."""
    if not source.enabled:
        return "off"
    return "on" if source.rule.model else "untrained"


def train_model(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate models train NAME`."""
    source = _source(settings, args.rule)
    since, until = _span_of(args.since, args.until)
    from alerts.anomaly.train import train

    def work(lake: Lake) -> Any:
        return train(lake, ModelStore(store_folder(settings)), source.rule, since, until)

    done = _with_lake(settings, work)
    hours, message = done.header.device_hours, done.alerting_hours
    print_rows([_summary(done.hash, done.header, "")], args.output)
    print(
        f"of the {hours:,} hours it learned from it would have told of {message} "
        f"(threshold {source.rule.threshold:g}); a backtest over other days says more",
        file=sys.stderr,
    )
    if not args.keep:
        _use(settings, source, done.hash)
    return 0


def retrain_models(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate models retrain`: exit code 1 when a model could not be trained; it stays then."""
    from alerts.anomaly.drift_notes import note_drift

    now = datetime.now(UTC)
    note_drift(settings, now)
    old = aged(settings, now)
    if not old:
        print("no model in force is old enough to be trained again", file=sys.stderr)
        return 0
    since, until = _span_of(args.since, args.until)
    return 1 if _with_lake(settings, lambda lake: retrain(lake, old, since, until)) else 0


def aged(settings: Settings, now: datetime) -> list[ModelSource]:
    """The rules whose model in force is `jobs.retrain_days` old; none where that is 0."""
    days = settings.jobs.retrain_days
    store = ModelStore(store_folder(settings))
    return [
        source
        for source in model_rules(settings).sources.values()
        if days
        and source.runs
        and now - store.header(source.rule.model).trained_at >= timedelta(days=days)
    ]


def retrain(
    lake: Lake, sources: Sequence[ModelSource], since: datetime, until: datetime
) -> list[ModelSource]:
    """Train these rules on events in [since, until) and put the models in force; the rules that
    have too little history, which keep the model they had."""
    # Only here: most runs find nothing old, and need no Spark.
    from alerts.anomaly.train import train

    store = ModelStore(store_folder(lake.settings))
    failed = []
    for source in sources:
        try:
            done = train(lake, store, source.rule, since, until)
        except Usage as error:
            print(printable(f"{error}; its model stays in force"), file=sys.stderr)
            failed.append(source)
        else:
            _use(lake.settings, source, done.hash)
    return failed


def show_models(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate models show NAME`."""
    store = ModelStore(store_folder(settings))
    model_rule_set = model_rules(settings)
    source = model_rule_set.named(args.rule)
    if source is None:
        name = _hash(store, args.rule)
        header = msgspec.to_builtins(store.header(name)) | {"hash": name}
        print_document(header, indent=2)
        return 0
    rows = [
        _summary(name, header, "in force" if name == source.rule.model else "")
        for name, header in store.all()
        if header.rule_id == source.rule.id
    ]
    print_rows(rows, args.output)
    if not rows:
        print(f"no model yet: headgate models train {args.rule}", file=sys.stderr)
    return 0


def use_model(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate models use NAME HASH`."""
    source = _named_source(model_rules(settings), args.rule)
    _use(settings, source, _hash(ModelStore(store_folder(settings)), args.model))
    return 0


def drift_models(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate models drift [NAME]`: exit code 1 when a model is to be trained again."""
    from alerts.anomaly.drift import TRAIN_AGAIN, drift_of
    from infra.delta.duckdb_views import connect

    model_rule_set = model_rules(settings)
    sources = list(model_rule_set.sources.values())
    if args.rule:
        sources = [_named_source(model_rule_set, args.rule)]
    rules = [source.rule for source in sources if source.rule.model]
    since, until = _span_of(args.since, args.until)
    store = ModelStore(store_folder(settings))
    rows: list[dict[str, Any]] = []
    if rules:
        duck = connect(settings.lake_root, needs=("gold.device_hour",), only=())
        try:
            for rule in rules:
                drift = drift_of(duck, store.get(rule.model), since, until)
                rows.append(
                    {"rule": rule.name or rule.id, "state": drift.state, "hours": drift.hours,
                     "rare": drift.rare, "what": drift.sentence}
                )  # fmt: skip
        finally:
            duck.close()
    print_rows(rows, args.output)
    if not rows:
        print("no rule runs with a model; headgate models list shows them", file=sys.stderr)
    return 1 if any(row["state"] == TRAIN_AGAIN for row in rows) else 0


def backtest_model(args: argparse.Namespace, settings: Settings) -> int:
    """`headgate models backtest NAME`."""
    return model_summary(settings, args.rule, args.since, args.until, args.output, model=args.model)


def among(settings: Settings, names: Sequence[str]) -> list[str]:
    """Those of some rules, or files of drafts, that are of kind model."""
    # Drafts count, too: whether a file is of this kind shows only when it is read.
    files = {name: Path(name) for name in names if Path(name).is_file()}
    model_rule_set = model_rules(settings, tuple(files.values()))
    paths = {source.path for source in model_rule_set.sources.values()}
    # One that is refused counts as well: it is to be told so, not to be taken for another kind.
    paths |= {refused.path for refused in model_rule_set.refused}
    return [
        name
        for name in names
        if (files[name] in paths if name in files else model_rule_set.named(name) is not None)
    ]


def model_summary(
    settings: Settings,
    name: str,
    since: str,
    until: str | None,
    output: str,
    limit: int | None = None,
    model: str | None = None,
) -> int:
    """Print what a rule finds in history, at most `limit` hours, judged by a model or the one in
    force. Raises `Usage` before it has one."""
    from alerts.anomaly.job import device_history, whole_hours

    source, store = _source(settings, name), ModelStore(store_folder(settings))
    chosen = _hash(store, model) if model else source.rule.model
    if not chosen:
        raise Usage(f"rule '{name}' has no model yet: headgate models train {name}")
    judge = store.get(chosen)
    # A model judges whole hours: the part of one would look quieter than the device was.
    begin, end = whole_hours(*_span_of(since, until))
    result, looked_at = _with_lake(
        settings, lambda lake: device_history(lake, source.rule, judge, begin, end)
    )
    rows = [
        {
            "hour": row["window_start"].isoformat(),
            "device": (row["holder"]["mac"] if row["holder"].get("mac") else None)
            or row["ip"]
            or row["host_name"],
            "name": row["holder"].get("hostname"),
            "score": float(dict(row["fields"])["score"]),
            "what": row["snippet"],
        }
        for row in result
    ]
    print_rows(rows[:limit], output)
    first = f"; the first {limit} are shown (--limit)" if limit and len(rows) > limit else ""
    print(f"{len(rows)} of {looked_at:,} hours of devices that it knows{first}", file=sys.stderr)
    # Judged on what it learned from, a model looks better than it is.
    if begin < judge.header.until and end > judge.header.since:
        print("the span overlaps with the history the model was trained on", file=sys.stderr)
    return 0


def _span_of(asked_since: str, asked_until: str | None) -> tuple[datetime, datetime]:
    now = datetime.now(UTC)
    until = since_when(asked_until, now, "--to") if asked_until else now
    since = since_when(asked_since, until, "--from")
    if since >= until:
        raise Usage(f"--from {since.isoformat()}: must be before {until.isoformat()}")
    return since, until


def _source(settings: Settings, name: str) -> ModelSource:
    """A rule by id, name, or the file of a draft; raises `Usage`."""
    path = Path(name)
    if not path.is_file():
        return _named_source(model_rules(settings), name)
    model_rule_set = model_rules(settings, (path,))
    for source in model_rule_set.sources.values():
        if source.path == path:
            return source
    for refused in model_rule_set.refused:
        if refused.path == path:
            raise Usage(f"{path} is refused: {refused.reason}")
    raise Usage(f"{path}: holds no rule with `type: model`")


def _named_source(found: Models, name: str) -> ModelSource:
    source = found.named(name)
    if source is None:
        raise Usage(f"no rule '{name}' of kind model; 'headgate models list' shows them")
    return source


def _hash(store: ModelStore, text: str) -> str:
    """A model by the first digits of its hash; raises `Usage`."""
    names = [name for name, _ in store.all() if name.startswith(text)]
    if len(names) != 1:
        raise Usage(
            f"'{text}' is no rule of kind model, and {len(names)} models have a hash that begins so"
        )
    return names[0]


def _use(settings: Settings, source: ModelSource, model_hash: str) -> None:
    ModelStore(store_folder(settings)).use(source.rule.id, model_hash)
    pack = recompile(settings).pack
    runs = any(rule.id == source.rule.id for rule in pack.models)
    where = "is in force" if runs else "is kept; its rule is off, or in no folder of alerts.rules"
    print(f"model {model_hash} {where} (rule pack {pack.hash})", file=sys.stderr)


def _summary(name: str, header: ModelHeader, state: str) -> dict[str, Any]:
    return {
        "model": name,
        "state": state,
        "trained_at": header.trained_at.isoformat(timespec="seconds"),
        "from": header.since.isoformat(),
        "to": header.until.isoformat(),
        "devices": header.devices,
        "too_new": header.unjudged,
        "hours": header.device_hours,
        "peers": " ".join(str(group.devices) for group in header.peers),
    }


def _with_lake(settings: Settings, work: Any) -> Any:
    from infra.delta.duckdb_views import require_lake
    from infra.spark.session import session
    from infra.streaming.lake import Lake

    require_lake(settings.lake_root)
    spark = session(settings, "models")
    try:
        return work(Lake(spark, settings).ensure())
    finally:
        spark.stop()
