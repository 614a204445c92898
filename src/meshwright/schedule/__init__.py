"""Pipeline schedules: pure functions that order forward and backward passes on each pipeline rank.

``SCHEDULES`` is the table that command line, documentation and contract tests read.
"""

from meshwright.schedule.building_block import v_half, v_min
from meshwright.schedule.generators import ScheduleKind, looped_placement, v_placement
from meshwright.schedule.gpipe import gpipe, gpipe_in_flight
from meshwright.schedule.interleaved import interleaved, interleaved_in_flight
from meshwright.schedule.one_f_one_b import one_f_one_b, one_f_one_b_in_flight
from meshwright.schedule.zero_bubble import zb_h1, zb_h1_lists, zb_h2, zb_h2_lists

SCHEDULES: dict[str, ScheduleKind] = {
    "gpipe": ScheduleKind(
        generate=gpipe,
        in_flight=gpipe_in_flight,
        chunked=False,
        summary="all forward, then all backward passes",
        steady_rounds=None,
    ),
    "1f1b": ScheduleKind(
        generate=one_f_one_b,
        in_flight=one_f_one_b_in_flight,
        chunked=False,
        summary="one forward, one backward in turn",
        steady_rounds=2,
    ),
    "interleaved-1f1b": ScheduleKind(
        generate=interleaved,
        in_flight=interleaved_in_flight,
        chunked=True,
        summary="1F1B over several smaller stages per rank",
        steady_rounds=4,
        micro_batch_multiple=lambda ranks: ranks,
    ),
    "zb-h1": ScheduleKind(
        generate=zb_h1,
        in_flight=None,
        chunked=False,
        summary="weight gradients fill bubbles, with 1F1B's memory",
        steady_rounds=None,
        split=True,
        automatic=zb_h1_lists,
        searched=False,
    ),
    "zb-h2": ScheduleKind(
        generate=zb_h2,
        in_flight=None,
        chunked=False,
        summary="weight gradients fill bubbles, with twice 1F1B's memory",
        steady_rounds=None,
        split=True,
        automatic=zb_h2_lists,
        searched=False,
    ),
    "v-half": ScheduleKind(
        generate=v_half,
        in_flight=None,
        chunked=True,
        summary="two chunks a rank in a V, half of 1F1B's activations",
        steady_rounds=3,
        fixed_chunks=2,
        placement=v_placement,
        split=True,
        searched=False,
    ),
    "v-min": ScheduleKind(
        generate=v_min,
        in_flight=None,
        chunked=True,
        summary="two chunks a rank in a V, a third of 1F1B's activations",
        steady_rounds=3,
        fixed_chunks=2,
        placement=v_placement,
        split=True,
        searched=False,
    ),
}

KNOWN_SCHEDULES: tuple[str, ...] = (
    *SCHEDULES,
    "looped-bfs",
    "zero-bubble",
    "zb-v",
    "dualpipe",
    "dualpipev",
    "zeropp",
)
"""Names of the plan language; those without an entry in ``SCHEDULES`` are refused by name."""


def schedule_placement(name: str | None, ranks: int, chunks: int) -> tuple[int, ...]:
    """Pipeline rank of each stage under a schedule; a loop for a name that has no entry."""
    kind = SCHEDULES.get(name or "")
    return (kind.placement if kind else looped_placement)(ranks, chunks)
