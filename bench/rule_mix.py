"""Rules with the feature mix of the public Sigma set, and events of the same log sources.

All words are made up. A rule's literals are of three kinds: `rare` ones that one
event in a few thousand holds, `usual` ones that one in fifty holds (such as a
shell's switches), and names of programs, few of which run often. A rule that
asks for nothing else names a tool that hardly ever runs.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from alerts.matching.event_rows import event_batch
from alerts.rulepack.predicate import All, Either, Node, Not, Test, literals_of
from alerts.rulepack.rule_pack import Rule, RulePack

SEED = 20261121
NOON = datetime(2025, 3, 1, 12, tzinfo=UTC)
HIT_SHARE = 0.001
SEEN = 800
"""So many of the rare words occur in events that no rule was made to match."""

SYLLABLES = ("ba", "con", "de", "fer", "gul", "hi", "jor", "ka", "lem", "mi", "nor", "pra", "qui")


@dataclass(frozen=True)
class Channel:
    """A log source: its class, its parser, its share of the rules, and its fields by use.

    `text` is long and free, `name` a path, `also` another path; `ip` an address.
    """

    name: str
    class_uid: int
    source: str
    share: float
    text: str
    place: str
    also: str
    ip: str = ""


CHANNELS = (
    Channel(
        "process", 1007, "windows_xml", 0.37, "process.cmd_line", "process.path",
        "process.parent.path",
    ),
    Channel(
        "registry", 201002, "windows_xml", 0.11, "reg_value.data", "reg_value.path",
        "actor.process.path",
    ),
    Channel("file", 1001, "windows_xml", 0.10, "file.path", "file.path", "actor.process.path"),
    Channel("script", 1009, "windows_xml", 0.09, "script.content", "script.path", "script.name"),
    Channel("module", 1005, "windows_xml", 0.05, "module.file.path", "module.file.path",
            "actor.process.path"),
    Channel("network", 4001, "windows_xml", 0.04, "dst_endpoint.hostname", "actor.process.path",
            "user.name", "dst_endpoint.ip"),
    Channel("dns", 4003, "zeek:dns", 0.05, "query.hostname", "query.hostname", "answers.rdata",
            "src_endpoint.ip"),
    Channel("web", 4002, "nginx", 0.07, "http_request.url.url_string", "http_request.url.path",
            "http_request.user_agent", "src_endpoint.ip"),
    Channel("cloud", 6003, "aws_cloudtrail", 0.06, "unmapped", "api.operation",
            "api.service.name", "src_endpoint.ip"),
    Channel("linux", 1007, "auditd", 0.06, "process.cmd_line", "process.path", "process.cwd"),
)  # fmt: skip
PROCESS = CHANNELS[:1]


@dataclass
class Words:
    """Made-up words: `rare` belong to rules, `usual` to rules and events, `plain` to events."""

    rng: random.Random
    rare: list[str] = field(default_factory=list)
    usual: list[str] = field(default_factory=list)
    plain: list[str] = field(default_factory=list)
    programs: list[str] = field(default_factory=list)
    tools: list[str] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rare = [f"{self._word(1, 2)}{n}{self._word(1, 2)}" for n in range(1000, 9000)]
        self.usual = [f" {sign}{self._word(1, 2)} " for sign in "-/" for _ in range(25)]
        self.plain = [self._word(2, 4) for _ in range(6000)]
        self.programs = [f"{self._word(2, 3)}.exe" for _ in range(1200)]
        self.tools = [f"{word}.exe" for word in self.rare]
        self.folders = [f"C:\\{self._word(2, 4)}\\{self._word(2, 4)}" for _ in range(60)]

    def _word(self, low: int, high: int) -> str:
        word = "".join(self.rng.choices(SYLLABLES, k=self.rng.randint(low, high)))
        return word.capitalize() if self.rng.random() < 0.3 else word

    def program(self) -> str:
        """A program as often as it runs: the first few make up most events."""
        return self.programs[min(int(self.rng.paretovariate(0.8)) - 1, len(self.programs) - 1)]

    def path(self) -> str:
        """A program in its folder; a program lies in the same folder most times."""
        program = self.program()
        return f"{self.folders[len(program) * 7 % len(self.folders)]}\\{program}"


def rule_pack(count: int, channels: Sequence[Channel] = CHANNELS, seed: int = SEED) -> RulePack:
    """So many rules over the channels, by their shares."""
    words = Words(random.Random(seed))
    rng = random.Random(seed + 1)
    made = []
    for number in range(count):
        (channel,) = rng.choices(channels, [c.share for c in channels])
        node = _predicate(channel, words, rng)
        made.append(
            Rule(
                id=f"rule-{number:05}",
                title=f"{channel.name} {number}",
                level="high",
                classes=(channel.class_uid,),
                sources=(channel.source,),
                predicate=node,
                literals=literals_of(node),
            )
        )
    return RulePack(rules=tuple(made))


def _predicate(channel: Channel, words: Words, rng: random.Random) -> Node:
    """Each modifier as often as in the public set; a rule without any compares whole values."""
    parts: list[Node] = []
    contains, ends = rng.random() < 0.64, rng.random() < 0.55
    if contains:
        rare = words.rare if ends else words.rare[SEEN:]
        parts.append(_contains(channel, words.usual, rare, rng))
    if ends:
        names = rng.sample(words.programs[:40] if contains else words.tools, 3)
        named = [Test(channel.place, "endswith", f"\\{n}") for n in names[: rng.randint(1, 3)]]
        parts.append(Either(tuple(named)))
    if rng.random() < 0.09:
        folder = f"{rng.choice(words.folders)}\\{rng.choice(words.rare)}"
        parts.append(Test(channel.also, "startswith", folder))
    if rng.random() < 0.03:
        parts.append(Test(channel.text, "re", rf"(?i){rng.choice(words.rare)}\d{{2,4}}[a-f]+"))
    if channel.ip and rng.random() < 0.007 / 0.22:
        parts.append(Test(channel.ip, "cidr", f"10.{rng.randint(0, 200)}.0.0/16"))
    if not parts:
        parts.append(Test(channel.place, "eq", rng.choice(words.rare)))
    if rng.random() < 0.22:
        folder = rng.choice(words.folders)
        parts.append(Not(Either((
            Test(channel.also, "startswith", f"{folder}\\"),
            Test(channel.text, "contains", rng.choice(words.rare)),
        ))))  # fmt: skip
    return All(tuple(parts))


def _contains(
    channel: Channel, usual: Sequence[str], rare: Sequence[str], rng: random.Random
) -> Node:
    """A third of the rules ask for all of several texts, some of them usual ones only."""
    if rng.random() < 0.22 / 0.64:
        pool = usual if rng.random() < 0.3 else rare
        wanted = [*rng.sample(pool, 3), rng.choice(usual)]
        return All(tuple(Test(channel.text, "contains", text) for text in wanted))
    wanted = rng.sample(rare, rng.randint(1, 8))
    return Either(tuple(Test(channel.text, "contains", text) for text in wanted))


def event_batches(
    pack: RulePack, count: int, channels: Sequence[Channel] = CHANNELS, rows: int = 10_000
) -> list[pa.RecordBatch]:
    """So many events over the channels, by their shares; one in a thousand made for a rule."""
    words = Words(random.Random(SEED))
    rng = random.Random(SEED + 2)
    made = list(_events(pack, count, channels, words, rng))
    return [event_batch(made[at : at + rows]) for at in range(0, count, rows)]


def _events(
    pack: RulePack, count: int, channels: Sequence[Channel], words: Words, rng: random.Random
) -> Iterator[dict[str, Any]]:
    by_key = {(c.class_uid, c.source): c for c in channels}
    shares = [c.share for c in channels]
    for number in range(count):
        (channel,) = rng.choices(channels, shares)
        leaves: dict[str, Any] = {}
        if pack.rules and rng.random() < HIT_SHARE:
            rule = rng.choice(pack.rules)
            channel = by_key[(rule.classes[0], rule.sources[0])]
            leaves = _leaves(channel, words, rng) | dict(_satisfying(rule.predicate, words))
        yield _nested(_head(number, channel, words) | (leaves or _leaves(channel, words, rng)))


def _head(number: int, channel: Channel, words: Words) -> dict[str, Any]:
    at = NOON + timedelta(milliseconds=number)
    return {
        "event_uid": f"{number:032x}",
        "source": channel.source,
        "mode": "live",
        "time": at,
        "received_at": at,
        "class_uid": channel.class_uid,
        "host_name": f"host-{number % 500}",
        "metadata.product.name": channel.source,
        "message": words.plain[number % len(words.plain)],
    }


def _leaves(channel: Channel, words: Words, rng: random.Random) -> dict[str, Any]:
    """A text of four to twenty words beside paths; one text in six holds a rule's word."""
    texts = [rng.choice(words.plain) for _ in range(rng.randint(4, 20))]
    if rng.random() < 0.16:
        texts.append(rng.choice(words.rare[:SEEN]))
    texts += [rng.choice(words.usual) for _ in range(rng.randint(0, 2))]
    rng.shuffle(texts)
    path = words.path()
    leaves: dict[str, Any] = {channel.also: words.path(), channel.place: path}
    leaves[channel.text] = f"{path} {' '.join(texts)}"
    if channel.place.startswith("process."):
        leaves |= {
            "process.internal_name": path.rpartition("\\")[2],
            "process.parent.cmd_line": f"{words.path()} {rng.choice(words.plain)}",
            "process.pid": rng.randint(4, 60000),
            "process.user.name": f"user{rng.randint(0, 300)}",
        }
    if channel.ip:
        leaves[channel.ip] = f"192.168.{rng.randint(0, 255)}.{rng.randint(1, 254)}"
    return leaves


def _satisfying(node: Node, words: Words) -> Iterator[tuple[str, str]]:
    """Values with which the event matches the rule, but for what it rules out by chance."""
    texts: dict[str, list[str]] = {}
    for part in node.of if isinstance(node, All) else ():
        for test in _wanted(part):
            if test.op == "re":
                text = str(test.value).removeprefix("(?i)").partition("\\d")[0] + "123abc"
            elif test.op == "cidr":
                text = str(test.value).replace("0.0/16", "7.7")
            else:
                text = str(test.value)
            texts.setdefault(test.field, []).append(text)
    for path, wanted in texts.items():
        ordered = sorted(wanted, key=lambda t: (not t.startswith("C:"), t.endswith(".exe")))
        yield path, "x".join(ordered) if len(ordered) > 1 else ordered[0]


def _wanted(node: Node) -> list[Test]:
    if isinstance(node, Test):
        return [node]
    if isinstance(node, All):
        return [test for part in node.of for test in _wanted(part)]
    return _wanted(node.of[0]) if isinstance(node, Either) else []


def _nested(leaves: Mapping[str, Any]) -> dict[str, Any]:
    event: dict[str, Any] = {}
    for path, value in leaves.items():
        if path == "answers.rdata":
            event["answers"] = [{"rdata": value}]
            continue
        *parents, last = path.split(".")
        inner = event
        for name in parents:
            inner = inner.setdefault(name, {})
        inner[last] = value
    return event
