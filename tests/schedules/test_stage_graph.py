"""Stages with branches: what passes wait for, legal and illegal lists, times; a chain is the graph in a row."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.play.execution_order import DeadlockError
from meshwright.schedules.action import Action, parse_actions
from meshwright.schedules.bubble_metrics import messages_of
from meshwright.schedules.custom.check_lists import check_passes
from meshwright.schedules.custom.inferred_shape import Shape
from meshwright.schedules.dependencies import StageChains, sources
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.stage_graph import StageGraph
from meshwright.schedules.timeline import run

DIAMOND = StageChains(4, graph=StageGraph(((), (0,), (0,), (1, 2))))
"""Stage 3 needs both branches, 1 and 2, of stage 0."""
PLACEMENT = (0, 0, 1, 1)
LISTS = [parse_actions("0F0 1F0 1I0 1W0 0I0 0W0"), parse_actions("2F0 3F0 3I0 2I0 3W0 2W0")]


def in_a_row(stages):
    return StageChains(
        stages, graph=StageGraph(tuple((stage - 1,) if stage else () for stage in range(stages)))
    )


def problems(lists, ways=DIAMOND, placement=PLACEMENT):
    return check_passes(lists, Shape(len(lists), placement, ways, ((0,),)))


@pytest.mark.parametrize(
    ("action", "needed"),
    [
        ("0F0", set()),
        ("3F0", {("F", 1, 0), ("F", 2, 0)}),
        ("3I0", {("F", 3, 0)}),
        ("0I0", {("B", 1, 0), ("B", 2, 0)}),
        ("1B0", {("B", 3, 0)}),
        ("0W0", {("B", 0, 0)}),
    ],
)
def test_a_pass_needs_all_branches(action, needed):
    assert set(sources(*parse_actions(action), DIAMOND)) == needed


def test_both_branches_of_a_diamond_run_at_once():
    """F of 0, a message, F of 2 beside F of 1, F of 3 behind both; then all of it back."""
    timeline = run(LISTS, lambda action: 1, 0, DIAMOND)
    assert timeline.start == ((0, 1, 4, 5, 6, 7), (1, 2, 3, 4, 5, 6))
    slow = {(0, 2): 5, (1, 3): 2}
    timeline = run(LISTS, lambda action: 1, lambda a, b: slow[min(a, b), max(a, b)], DIAMOND)
    assert timeline.start == ((0, 1, 11, 12, 15, 16), (6, 7, 8, 9, 10, 11))


def test_legal_lists_are_legal_and_faults_are_named():
    assert problems(LISTS) == []
    early = [LISTS[0], parse_actions("3F0 2F0 3I0 2I0 3W0 2W0")]
    assert [problem.value for problem in problems(early)] == ["3F0"]
    before_forward = [parse_actions("1F0 0F0 1I0 1W0 0I0 0W0"), LISTS[1]]
    assert [problem.value for problem in problems(before_forward)] == ["1F0"]
    missing = [LISTS[0], parse_actions("2F0 3F0 3I0 2I0 3W0")]
    assert [(problem.value, problem.rule) for problem in problems(missing)] == [("2W0", "is missing")]
    moved = [[*LISTS[0], *LISTS[1][-1:]], LISTS[1][:-1]]
    assert "stage 2 lies on rank 1" in problems(moved)[0].rule


def test_ranks_that_wait_for_each_other_over_branches_are_found():
    """Each rank runs the join of the other's branch before its own branch."""
    ways = StageChains(4, graph=StageGraph(((), (), (1,), (0,))))
    lists = [parse_actions("2F0 0F0"), parse_actions("3F0 1F0")]
    with pytest.raises(DeadlockError):
        run(lists, lambda action: 1, 0, ways)
    whole = [parse_actions("2F0 0F0 2I0 2W0 0I0 0W0"), parse_actions("3F0 1F0 3I0 3W0 1I0 1W0")]
    found = problems(whole, ways, (0, 1, 0, 1))
    assert "the ranks wait for each other" in found[0].rule


def test_a_result_is_sent_once_to_every_rank_that_needs_it():
    fan = StageChains(4, graph=StageGraph(((), (0,), (0,), (0,))))
    lists = [parse_actions("0F0 0B0"), parse_actions("1F0 2F0 1B0 2B0"), parse_actions("3F0 3B0")]
    assert messages_of(lists, fan) == (2, 2, 1)


@given(
    st.sampled_from(["1f1b", "gpipe", "zb-h1", "interleaved-1f1b", "zb-v"]),
    st.integers(2, 4),
    st.integers(1, 3),
)
@settings(deadline=None, max_examples=30)
def test_a_chain_is_the_graph_in_a_row(name, ranks, rounds):
    kind = SCHEDULES[name]
    chunks, micro_batches = 2 if kind.chunked else 1, ranks * rounds
    lists, stages = kind.lists(ranks, micro_batches, chunks), ranks * chunks
    row = in_a_row(stages)
    times = {"F": 1.1, "I": 1.3, "W": 0.7, "B": 2.0}

    def seconds(action):
        return times[action.kind] + (action.stage or 0) / 7

    chain = run(lists, seconds, 0.3, StageChains(stages))
    assert run(lists, seconds, 0.3, row) == chain
    assert run(lists, seconds, lambda a, b: 0.3, row) == chain
    assert messages_of(lists, row) == messages_of(lists, StageChains(stages))
    for stage in range(stages):
        for kind_of in ("F", "B", "W"):
            action = Action(kind_of, stage, 0)
            assert sources(action, row) == sources(action, StageChains(stages))
