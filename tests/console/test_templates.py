"""Templates: what a page gets wrong about a value of ours fails, and is not empty in silence."""

from __future__ import annotations

import re
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
