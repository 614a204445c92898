"""Lists that somebody wrote compute what plain PyTorch computes, in whatever legal order they are."""

from itertools import chain, pairwise

import pytest
from tiny_models import tiny

from meshwright.cluster.load import load_cluster
from meshwright.plans.forms.conversion import expand
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.resolve import resolve_with
from meshwright.program.lowering.lower_plan import lower
from meshwright.runtime.verify.case_result import DOUBTFUL
from meshwright.runtime.verify.run_case import run_case
from meshwright.runtime.verify.verify_case import VerifyCase
from meshwright.schedules.action import parse_actions
from meshwright.schedules.custom.csv_file import format_csv
from meshwright.schedules.pipeline import Pipeline, v_placement
from meshwright.schedules.solve import Effort, solve
from meshwright.schedules.stage_times import StageTimes
from meshwright.stack.load import load_stack
from meshwright.stack.stack import OWN_STACK


def solved(ranks, chunks, weight):
    """The solver's lists for unequal stages and four micro-batches."""
    stages = ranks * chunks
    times = StageTimes(tuple(1.0 + s % 2 for s in range(stages)), (1.0,) * stages, (weight,) * stages, 0.25)
    pipeline = Pipeline(ranks=ranks, micro_batches=4, placement=v_placement(ranks, chunks), times=times)
    return format_csv(solve(pipeline, Effort(seconds=60, steps=50, method="local")).lists)


SWAPPED = format_csv(
    [parse_actions("0F0 0F2 0F1 0B2 0B1 0F3 0B0 0B3"), parse_actions("1F1 1F2 1B2 1F0 1B1 1F3 1B0 1B3")]
)
"""1F1B's passes in another order than micro-batches are numbered in, and received in another than they are sent in."""
CASES = {
    "1f1b with passes swapped": ("llama", SWAPPED, 1, "zero1"),
    "a solver's, I and W apart": ("qwen3", solved(4, 1, 1.5), 1, "none"),
    "a solver's in a V": ("llama", solved(2, 2, 1.0), 2, "zero3"),
}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", CASES)
def test_lists_compute_what_one_device_computes(name):
    family, text, chunks, sharding = CASES[name]
    model, pp = tiny(family, num_hidden_layers=4), len(text.splitlines())
    data = {
        "plan": 1,
        "model": family,
        "cluster": "h100-sxm-80gb x 4",
        "stack": OWN_STACK,
        "workload": {"seq_len": 24, "global_batch": 16 // pp},
        "layout": {"pp": pp, "dp_shard": 4 // pp},
        "sharding": sharding,
        "pipeline": {"schedule": {"lists": tuple(text.splitlines())}, "virtual_stages": chunks},
    }
    cluster, stack = load_cluster(data["cluster"]), load_stack(OWN_STACK)
    plan = expand(ShortPlan.model_validate(data), model.architecture)
    legal = resolve_with(plan, model, cluster, stack)
    program = lower(legal.long, model, cluster, legal.setting.workload, stack)
    passes = [[a for a in actions if a.kind in "FBIW"] for actions in program.lists]
    assert format_csv(passes) == text
    outcome = run_case(VerifyCase(program, model), lambda what, part: None)
    assert outcome.caught_by == (), outcome
    assert outcome.worst.value < DOUBTFUL


def test_the_cases_are_no_schedules_of_the_table():
    """I and W apart in one of them, the order of micro-batches another in one, both chunks of a V in one."""
    orders = {
        name: list(map(parse_actions, text.replace(",", " ").splitlines()))
        for name, (_, text, *_) in CASES.items()
    }
    swapped, split, v = orders.values()
    assert [a.micro_batch for a in swapped[0] if a.kind == "F"] == [0, 2, 1, 3]
    after_i = [(a, b) for actions in split for a, b in pairwise(actions) if a.kind == "I"]
    assert any((b.kind, b.micro_batch) != ("W", a.micro_batch) for a, b in after_i)
    assert {a.stage for a in chain(*v)} == {0, 1, 2, 3}
