"""Templates: what a page gets wrong about a value of ours fails, and is not empty in silence."""

from __future__ import annotations

import html
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import jinja2
import pytest
from jinja2 import nodes

import api
from api.console.render import templates
from api.services.console.platform_health import JobView

ROOT = Path(api.__file__).parent.parent


JOB = JobView("ingest", "running", None, None, None, None, None)


@pytest.mark.parametrize(
    "template",
    ["{{ job.nmae }}", "{% if job.nmae %}x{% endif %}", "{{ job.nmae|shown }}", "{{ nmae }}",
     "{{ job.nmae.first }}", "{% for each in job.nmae %}{% endfor %}"],
)  # fmt: skip
def test_a_misspelt_name_of_ours_fails_the_page(template: str) -> None:
    page = templates().from_string(template)
    with pytest.raises(jinja2.UndefinedError):
        page.render(job=JOB)


def test_what_an_alert_does_not_say_is_empty() -> None:
    page = templates().from_string(
        "{{ body.asset.owner }}{% for each in body.rule.tags %}{% endfor %}"
        "{% for each in body.attack %}{{ each.technique.name }}{% endfor %}{{ body.rule.name }}"
    )
    body = {"rule": {"name": "scan"}, "asset": None, "attack": [{"tactics": []}]}
    assert page.render(body=body) == "scan"


def attributes(tree: nodes.Template) -> Iterator[str]:
    for node in tree.find_all(nodes.Getattr):
        yield node.attr
    for node in tree.find_all(nodes.Getitem):
        if isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str):
            yield node.arg.value


def test_each_field_that_a_template_names_is_named_in_the_code_too() -> None:
    """Also in branches that no test shows."""
    known: set[str] = set()
    for package in ("api", "alerts", "infra", "enrich"):
        for file in (ROOT / package).rglob("*.py"):
            known |= set(re.findall(r"[A-Za-z_]\w*", file.read_text("utf-8")))
    made = templates()
    assert made.loader is not None
    odd = {}
    for name in made.list_templates(filter_func=lambda name: name.endswith(".html")):
        source, _, _ = made.loader.get_source(made, name)
        tree = made.parse(source)
        macros = {macro.name for macro in tree.find_all(nodes.Macro)}
        known |= macros | {target.name for target in tree.find_all(nodes.Name)}
    for name in made.list_templates(filter_func=lambda name: name.endswith(".html")):
        source, _, _ = made.loader.get_source(made, name)
        if lacking := set(attributes(made.parse(source))) - known - LOOP:
            odd[name] = sorted(lacking)
    assert odd == {}


LOOP = frozenset({"index0", "first", "last", "items"})
"""What Jinja and Python's own types bring."""


OURS = ("address", "kind", "rest_query", "alert_id", "case_id", "token", "evidence_sql")
"""What is no text of others: ids and addresses that we made, and SQL, which is for no shell."""


def bare(text: nodes.Node) -> Iterator[nodes.Node]:
    """The parts of a text that are copied as a log or an address had them."""
    match text:
        case nodes.Const() | nodes.Filter(name="shell" | "seg" | "iso"):
            return
        case nodes.Concat():
            parts = text.nodes
        case nodes.CondExpr():
            parts = [text.expr1, *([text.expr2] if text.expr2 else [])]
        case nodes.Name(name=name) | nodes.Getattr(attr=name) if name in OURS:
            return
        case _:
            yield text
            return
    for part in parts:
        yield from bare(part)


def copies(made: jinja2.Environment) -> Iterator[tuple[str, nodes.Node]]:
    """What pages offer to copy, by template."""
    assert made.loader is not None
    for name in made.list_templates(filter_func=lambda name: name.endswith(".html")):
        tree = made.parse(made.loader.get_source(made, name)[0])
        for call in tree.find_all(nodes.Call):
            if isinstance(call.node, nodes.Getattr) and call.node.attr == "copy":
                yield name, call.args[1]


def test_a_command_that_is_copied_holds_no_word_that_a_shell_would_run() -> None:
    """Names come from logs and addresses, and whoever copies pastes into a shell."""
    made = templates()
    offered = list(copies(made))
    assert len(offered) > 20
    assert [(name, part) for name, text in offered for part in bare(text)] == []
    loose = made.parse("{{ ui.copy('x', 'headgate lease ' ~ value) }}")
    assert [part for call in loose.find_all(nodes.Call) for part in bare(call.args[1])] != []
    page = made.from_string("headgate sql {{ ('SELECT \\'$(id)\\' < ' ~ 1)|shell }}")
    assert shlex.split(html.unescape(page.render())) == ["headgate", "sql", "SELECT '$(id)' < 1"]
