"""Tables of the lists: a line for each entry, with its figures."""

import pytest
from rendered_text import rendered

from meshwright.present.catalogue_tables import render_devices, render_models, render_stacks
from meshwright.verbs.catalogue import list_devices, list_models, list_stacks


@pytest.mark.parametrize(
    ("kind", "listed", "render", "key"),
    [
        ("models", list_models, render_models, "name"),
        ("devices", list_devices, render_devices, "id"),
        ("stacks", list_stacks, render_stacks, "name"),
    ],
)
def test_a_line_for_each(kind, listed, render, key):
    data = {kind: listed()}
    lines = rendered(render, data).splitlines()[1:]
    assert [line.split()[0] for line in lines[: len(data[kind])]] == [row[key] for row in data[kind]]
    assert all(len(line) <= 100 for line in lines)
