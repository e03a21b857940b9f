"""Every source has a name for people."""

from __future__ import annotations

from ingest.parsing.source import source_modules
from reporting.figures.source_names import source_name


def test_every_source_has_a_name_for_people_and_no_two_have_one() -> None:
    sources = [source.name for module in source_modules() for source in module.SOURCES]
    names = {source: source_name(source) for source in sources}
    assert [source for source, name in names.items() if source == name] == []
    assert len(set(names.values())) == len(names)


def test_a_kind_of_a_family_is_called_after_the_family_and_others_by_themselves() -> None:
    assert source_name("zeek:modbus") == "Network traffic (Zeek): modbus"
    assert source_name("own_parser") == "own_parser"
