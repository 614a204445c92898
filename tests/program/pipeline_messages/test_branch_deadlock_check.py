"""Messages of stages with branches under NCCL's rules."""

from meshwright.program.pipeline_messages.branch_deadlock_check import check_branch_messages
from meshwright.schedules.action import parse_actions
from meshwright.schedules.dependencies import StageChains
from meshwright.schedules.stage_graph import StageGraph

FAN = StageChains(4, graph=StageGraph(((), (0,), (0,), (1, 2))))


def checked(ways, placement, *texts):
    return check_branch_messages([parse_actions(text) for text in texts], placement, ways)


def test_a_fan_over_three_ranks_goes_through():
    assert not checked(FAN, (0, 1, 2, 0), "0F0 3F0 3B0 0B0", "1F0 1B0", "2F0 2B0")


def test_one_message_serves_all_stages_of_a_rank():
    assert not checked(FAN, (0, 1, 1, 0), "0F0 3F0 3B0 0B0", "1F0 2F0 2B0 1B0")


def test_results_may_be_needed_in_another_order_than_they_are_made():
    """Both results go from rank 0 to rank 1; the second one is needed first."""
    ways = StageChains(4, graph=StageGraph(((), (), (1,), (0,))))
    assert not checked(ways, (0, 0, 1, 1), "0F0 1F0 1B0 0B0", "2F0 3F0 3B0 2B0")


def test_ranks_that_wait_for_each_other_are_found():
    ways = StageChains(4, graph=StageGraph(((), (), (1,), (0,))))
    found = checked(ways, (0, 1, 0, 1), "2F0 0F0 2B0 0B0", "3F0 1F0 3B0 1B0")
    assert [problem.rule for problem in found] == [
        "the ranks wait for each other's messages and none can go on"
    ]
