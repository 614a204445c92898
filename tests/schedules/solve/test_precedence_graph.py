"""What the graph keeps up to date is what playing the lists says."""

from hypothesis import given, settings
from hypothesis import strategies as st
from random_pipelines import pipelines, unit_pipeline

from meshwright.schedules.activation_memory import levels
from meshwright.schedules.dependencies import StageChains
from meshwright.schedules.pipeline import PASS_MEMORY
from meshwright.schedules.solve import SolverInput
from meshwright.schedules.solve.initial_schedules import seeds
from meshwright.schedules.solve.precedence_graph import PrecedenceGraph
from meshwright.schedules.solve.tabu_moves import estimate, moves, reach
from meshwright.schedules.split_backward.pass_numbers import numbered
from meshwright.schedules.timeline import played

SIZES = [(2, 4, 1), (4, 6, 1), (3, 5, 2), (2, 4, 3)]


def board_of(pipeline):
    task = SolverInput.of(pipeline)
    return PrecedenceGraph(task, next(iter(seeds(task))).orders)


def hold_against_playing(board, pipeline):
    ways, lists = StageChains(pipeline.stages), numbered(board.orders, pipeline.stages)
    timeline = played(lists, pipeline.times, ways)
    assert [[board.end[node] for node in nodes] for nodes in board.lists] == [
        list(row) for row in timeline.end
    ]
    assert board.figures == (timeline.makespan, timeline.latency)
    longest = [board.end[node] - board.seconds[node] + board.rest[node] for node in range(board.nodes)]
    assert max(longest) == timeline.makespan
    for nodes, actions in zip(board.lists, lists, strict=True):
        held = [board.held[node] * PASS_MEMORY / pipeline.chunks for node in nodes]
        assert (
            max(
                abs(a - b)
                for a, b in zip(held, levels(actions, pipeline.ranks, ways, pipeline.times.kept), strict=True)
            )
            < 1e-9
        )
        assert max(held) <= pipeline.memory_limit + 1e-8


@settings(deadline=None, max_examples=30)
@given(pipelines(SIZES), st.randoms(use_true_random=False))
def test_after_any_moves(pipeline, random):
    board = board_of(pipeline)
    hold_against_playing(board, pipeline)
    for _ in range(20):
        node = random.randrange(board.nodes)
        position = reach(board, node, random.randrange(len(board.lists[board.rank[node]])))
        before = [list(nodes) for nodes in board.lists]
        if position != board.at[node] and not board.move(node, position):
            assert board.lists == before
    hold_against_playing(board, pipeline)


@settings(deadline=None, max_examples=30)
@given(pipelines(SIZES), st.randoms(use_true_random=False))
def test_neighbours_that_are_exchanged_come_to_the_estimate(pipeline, random):
    board = board_of(pipeline)
    for _ in range(20):
        node = random.randrange(board.nodes)
        wanted = board.at[node] + random.choice((-1, 1))
        if not 0 <= wanted < len(board.lists[board.rank[node]]) or reach(board, node, wanted) != wanted:
            continue
        other, expected = board.lists[board.rank[node]][wanted], estimate(board, node, wanted)
        if board.move(node, wanted):
            ways = (board.end[n] - board.seconds[n] + board.rest[n] for n in (node, other))
            assert max(ways) == expected <= board.figures[0]


@settings(deadline=None, max_examples=30)
@given(pipelines(SIZES), st.randoms(use_true_random=False))
def test_moves_that_may_shorten_keep_to_order_and_memory(pipeline, random):
    board = board_of(pipeline)
    for move in sorted(moves(board, random)):
        before = board.at[move.node]
        assert move.position != before
        if board.move(move.node, move.position):
            hold_against_playing(board, pipeline)
            return


def test_ranks_that_would_wait_for_each_other_are_seen():
    board = board_of(unit_pipeline(2, 2, 8))
    stages, count = 2, 2
    first_input, second_forward = stages * count, 1
    assert board.lists[0].index(second_forward) < board.lists[0].index(first_input)
    last = board.lists[1]
    assert last.index(second_forward + count) > 0  # 1F1
    before = [list(nodes) for nodes in board.lists]
    # 1F1 needs 0F1; behind the I that rank 1 gives back for micro-batch 1, 0F1 would wait for itself
    assert not board.move(second_forward, len(board.lists[0]) - 2)
    assert board.lists == before
