"""Bytes of states under usual recipes: as published where a number is, and in types that their stacks have."""

import csv
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def states():
    sys.path.insert(0, str(BENCHMARKS))
    try:
        import states
    finally:
        sys.path.remove(str(BENCHMARKS))
    return states


@pytest.fixture(scope="module")
def recipes(states):
    with states.RECIPES.open(encoding="utf-8", newline="") as file:
        return [states.Recipe(**row) for row in csv.DictReader(file)]


def test_published_numbers_are_met(states, recipes):
    assert states.wrong(recipes) == []
    assert sum(bool(recipe.published_bytes) for recipe in recipes) >= 4


def test_every_recipe_is_one_that_its_stack_runs(recipes):
    assert len(recipes) >= 12
    for recipe in recipes:
        warned = [p for p in recipe.resolved().warnings if p.field.startswith("dtypes")]
        assert warned == [], recipe.recipe


@pytest.mark.slow
def test_published_models_train_with_their_optimizer_on_the_host(states):
    questions = states.read_questions()
    assert sum(bool(asked.source) for asked in questions) >= 4
    for asked in questions:
        assert not asked.is_wrong(asked.best()), asked.question


def test_optimizers_with_fewer_moments_have_fewer_bytes(states, recipes):
    held = {
        recipe.recipe: states.bytes_per_parameter(recipe.resolved())["optimizer"]
        for recipe in recipes
        if recipe.optimizer != "adamw"
    }
    assert held["SGD without momentum"] == 4
    assert held["Momentum SGD"] == held["Lion"] == 8
    assert 8 < held["Muon"] < 9


def test_losses_on_four_devices_are_three_times_quicker(states):
    _, _, alone, pair, four = states.two_loss_rows()
    quicker = [[float(cell) for cell in row.split("|")[3:-1:2]] for row in (alone, pair, four)]
    assert quicker[0] == [1.0, 1.0, 1.0]
    assert all(1.4 < times < 2 for times in quicker[1])
    assert all(2.9 < times < 4 for times in quicker[2])


def test_muon_costs_time_and_saves_memory(states):
    _, _, adamw, muon = states.price_rows()
    of_adamw, of_muon = ([float(cell) for cell in row.split("|")[2:-1]] for row in (adamw, muon))
    assert of_muon[1] > of_adamw[1]
    assert of_muon[2] < of_adamw[2]
