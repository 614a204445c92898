"""Where the validation of a step goes, and what that is good for."""

from dataclasses import replace

import pytest
from lowered_programs import lowered, short_plan

from meshwright.program.lowering.optimizer_post_validation import before_validation, saves_states
from meshwright.schedules.generators import SCHEDULES

SHAPES = [(name, 4) for name in SCHEDULES] + [("1f1b", 2), ("zb-h2", 8)]


def program_of(schedule, ranks, **keys):
    kind = SCHEDULES[schedule]
    pipeline = {
        "schedule": {"name": schedule, "step_validation": "after"},
        "virtual_stages": kind.fixed_chunks or (2 if kind.chunked else 1),
    }
    stack = keys.pop("stack", "meshwright")
    short = short_plan(
        "dense", {"pp": ranks} | keys.pop("layout", {}), pipeline=pipeline, stack=stack, **keys
    )
    return lowered(short).program


def passes(actions):
    return sum(action.kind == "F" for action in actions)


@pytest.mark.parametrize(("schedule", "ranks"), SHAPES)
def test_sums_come_back_while_there_is_other_work(schedule, ranks):
    """No rank repeats more passes than the one before it, the last one none; at most two for each rank behind."""
    repeated = [passes(before_validation(actions)) for actions in program_of(schedule, ranks).lists]
    assert repeated[-1] == 0
    assert repeated[0] > 0
    assert all(0 <= count <= 2 * (ranks - 1 - rank) for rank, count in enumerate(repeated))
    assert sorted(repeated, reverse=True) == repeated


def test_a_pipeline_of_double_warm_up_validates_right_before_its_first_backward_pass():
    """ZB-H2 has 2(P − r) − 1 forward passes before its first backward one, of which all but one may be repeated."""
    lists = program_of("zb-h2", 4, workload={"global_batch": 16}).lists
    assert [passes(before_validation(actions)) for actions in lists] == [6, 4, 2, 0]


@pytest.mark.parametrize("stack", ["meshwright", "generic", "megatron-zero-bubble"])
def test_what_a_step_overwrites_is_kept_on_all_ranks_but_the_last_unless_it_can_be_inverted(stack):
    program = program_of("zb-h1", 4, stack=stack)
    kept = [saves_states(program, rank) for rank in range(4)]
    assert kept == [stack != "megatron-zero-bubble"] * 3 + [False]
    before = replace(program, lists=tuple(a[a.index(a[0]) : 1] for a in program.lists))
    assert not any(saves_states(before, rank) for rank in range(4))


def test_the_norm_is_summed_over_the_ranks_of_a_stage_and_then_from_rank_to_rank():
    program = program_of("zb-h1", 2, layout={"dp_shard": 2, "tp": 2})
    (item,) = program.collectives[None, "NORM"]
    assert program.group_size(item.axes) == 4
    assert "world" not in item.axes
    lone = program_of("zb-h1", 2)
    assert (None, "NORM") not in lone.collectives
    assert all("NORM" in map(str, actions) for actions in lone.lists)
