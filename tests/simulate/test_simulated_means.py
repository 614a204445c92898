"""Means of parameters in a simulated step: those of this step hold it up, those of earlier steps run beside it."""

from dataclasses import replace

import pytest
from pipeline_programs import lowered

from meshwright.cost.operators.price_plans import program_prices
from meshwright.program.pass_items import Collective
from meshwright.schedules.action import Action
from meshwright.simulate.simulator import simulate


def with_mean(program, version, size):
    """The Program without reductions over replicas, with a mean of each stage's parameters behind the step."""
    collectives = {key: of for key, of in program.collectives.items() if key[1] != "REDUCE"}
    lists = []
    for actions in program.lists:
        stages = sorted({action.stage for action in actions if action.kind == "F"})
        kept = [action for action in actions if action.kind != "REDUCE"]
        lists.append((*kept, *(Action("AVERAGE", stage) for stage in stages)))
    item = Collective("all-reduce", ("dp_replicate",), size, "parameters", version=version)
    collectives |= {(stage.index, "AVERAGE"): (item,) for stage in program.stages if version is not None}
    if version is None:
        lists = [tuple(action for action in actions if action.kind != "AVERAGE") for actions in lists]
    return replace(program, collectives=collectives, lists=tuple(map(tuple, lists)))


@pytest.mark.parametrize("size", [2**20, 2**36])
def test_a_mean_of_this_step_adds_its_time_and_one_of_before_what_the_step_does_not_hide(size):
    case = lowered(pp=2, dp_replicate=4)
    prices = program_prices(case.program, case.setting)
    without, now, before, long_before = (
        simulate(with_mean(case.program, version, size), prices).step_s for version in (None, 0, 1, 3)
    )
    seconds = float(prices.collective(Collective("all-reduce", ("dp_replicate",), size, "parameters")))
    assert now == pytest.approx(without + seconds)
    assert before == long_before
    assert max(without, seconds) <= before < now
    assert seconds > without or before == without
