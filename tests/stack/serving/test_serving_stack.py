"""Facts of engines: every one has a file, and an engine of another name has the generic facts."""

import pytest

from meshwright.stack.serving.serving_stack import ENGINES, GENERIC_ENGINE, load_serving_stack


@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_has_its_own_facts(name):
    assert load_serving_stack(name).name == name
    assert load_serving_stack(f"{name}@9.9") == load_serving_stack(name)


def test_an_unknown_engine_has_the_generic_facts():
    assert load_serving_stack("mango") == load_serving_stack(GENERIC_ENGINE)
