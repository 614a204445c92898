"""Sequences that tp ranks cut between their matrix products: some stacks hold them whole."""

from dataclasses import replace

import pytest
from plan_cases import DENSE, STACK, cluster, graph, long_plan

from meshwright.plans.rules.check_plan import check_plan
from meshwright.stack.load import load_stack

WHOLE = replace(STACK, sequence_parallel=False)


def problems(layout, stack):
    return check_plan(long_plan({"dp_shard": 16} | layout), graph(DENSE), cluster(64), stack)


def test_a_stack_without_sequence_parallelism_refuses_it_and_says_what_to_write():
    (problem,) = problems({"tp": 4}, WHOLE)
    assert (problem.field, problem.value, problem.severity) == ("layout.sequence_parallel", True, "error")
    assert problem.rule == "test-stack@1.0 has no sequence parallelism"
    assert problem.suggestion == "sequence_parallel: false"
    assert problems({"tp": 4, "sequence_parallel": False}, WHOLE) == []
    assert problems({"tp": 4}, STACK) == []


@pytest.mark.parametrize(("name", "able"), [("megatron-lm-2021", False), ("megatron-lm-2022", True)])
def test_megatron_got_it_in_2022(name, able):
    assert load_stack(name).sequence_parallel == able
