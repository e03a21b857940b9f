"""What a view's rows have is known without a lake."""

from __future__ import annotations

from api.services.view_columns import view_columns
from infra.delta.catalog import catalog, views


def test_every_view_has_columns_with_types_and_most_with_a_meaning() -> None:
    columns = view_columns()
    assert set(columns) == set(views())
    for name, described in columns.items():
        assert described, name
        assert all(kind for _, kind, _ in described), name


def test_a_view_of_all_columns_of_a_table_has_its_types() -> None:
    of_view = {name: kind for name, kind, _ in view_columns()["gold.alert_current"]}
    of_table = {c.name: c.type.simpleString() for c in catalog()["gold.alert"].columns}
    shared = of_view.keys() & of_table.keys()
    assert shared
    assert {n: of_view[n] for n in shared if "<" not in of_table[n]} == {
        n: of_table[n] for n in shared if "<" not in of_table[n]
    }
