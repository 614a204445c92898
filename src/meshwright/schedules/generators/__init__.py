"""Pipeline schedules: pure functions that order forward and backward passes on each pipeline rank.

``SCHEDULES`` is the table that command line, documentation and contract tests read.
"""

from meshwright.schedules.generators.dualpipe import dualpipe
from meshwright.schedules.generators.dualpipev import dualpipev
from meshwright.schedules.generators.gpipe import gpipe, gpipe_in_flight
from meshwright.schedules.generators.interleaved_1f1b import (
    interleaved,
    interleaved_in_flight,
    interleaved_unit_fault,
)
from meshwright.schedules.generators.looped_bfs import looped_bfs, looped_bfs_in_flight
from meshwright.schedules.generators.one_f_one_b import one_f_one_b, one_f_one_b_in_flight
from meshwright.schedules.generators.v_half_v_min import v_half, v_min
from meshwright.schedules.generators.zb_v import zb_v
from meshwright.schedules.generators.zero_bubble import zb_h1, zb_h2, zero_bubble
from meshwright.schedules.generators.zeropp import zeropp, zeropp_unit_fault
from meshwright.schedules.pipeline import v_placement
from meshwright.schedules.schedule_kind import ScheduleKind

SCHEDULES: dict[str, ScheduleKind] = {
    "gpipe": ScheduleKind(
        make=gpipe,
        in_flight=gpipe_in_flight,
        chunked=False,
        summary="all forward, then all backward passes",
        steady_rounds=None,
        note="its paper divides the bubble by the whole time, not by the work",
    ),
    "1f1b": ScheduleKind(
        make=one_f_one_b,
        in_flight=one_f_one_b_in_flight,
        chunked=False,
        summary="one forward, one backward in turn",
        steady_rounds=2,
        depends_on=frozenset({"in_flight"}),
    ),
    "interleaved-1f1b": ScheduleKind(
        make=interleaved,
        in_flight=interleaved_in_flight,
        chunked=True,
        summary="1F1B over several smaller stages per rank",
        steady_rounds=4,
        micro_batch_multiple=lambda ranks: ranks,
        depends_on=frozenset({"unit", "in_flight"}),
        unit_fault=interleaved_unit_fault,
        usual_unit=lambda ranks, micro_batches: ranks,
        unit_rounds=(2,),
    ),
    "looped-bfs": ScheduleKind(
        make=looped_bfs,
        in_flight=looped_bfs_in_flight,
        chunked=True,
        summary="several stages per rank, each with all micro-batches before the next",
        steady_rounds=None,
        depends_on=frozenset({"unit", "in_flight"}),
        usual_unit=lambda ranks, micro_batches: micro_batches,
        searched=False,
        unit_rounds=(1, 2),
    ),
    "zb-h1": ScheduleKind(
        make=zb_h1,
        in_flight=None,
        chunked=False,
        summary="weight gradients fill bubbles, with 1F1B's memory",
        steady_rounds=None,
        split=True,
        depends_on=frozenset({"times"}),
        default_memory_limit=1.0,
        searched=False,
    ),
    "zb-h2": ScheduleKind(
        make=zb_h2,
        in_flight=None,
        chunked=False,
        summary="weight gradients fill bubbles, with twice 1F1B's memory",
        steady_rounds=None,
        split=True,
        depends_on=frozenset({"times"}),
        default_memory_limit=2.0,
        searched=False,
    ),
    "zero-bubble": ScheduleKind(
        make=zero_bubble,
        in_flight=None,
        chunked=False,
        summary="weight gradients fill bubbles, within any memory limit",
        steady_rounds=None,
        split=True,
        depends_on=frozenset({"times", "memory_limit"}),
        default_memory_limit=1.0,
        searched=False,
    ),
    "zb-v": ScheduleKind(
        make=zb_v,
        in_flight=None,
        chunked=True,
        summary="two chunks a rank in a V, no bubble with 1F1B's memory",
        steady_rounds=None,
        fixed_chunks=2,
        placement=v_placement,
        split=True,
        depends_on=frozenset({"times", "memory_limit"}),
        default_memory_limit=1.0,
        searched=False,
    ),
    "v-half": ScheduleKind(
        make=v_half,
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
        make=v_min,
        in_flight=None,
        chunked=True,
        summary="two chunks a rank in a V, a third of 1F1B's activations",
        steady_rounds=3,
        fixed_chunks=2,
        placement=v_placement,
        split=True,
        searched=False,
    ),
    "dualpipe": ScheduleKind(
        make=dualpipe,
        in_flight=None,
        chunked=True,
        summary="micro-batches from both ends at once, parameters held twice",
        steady_rounds=2,
        micro_batch_multiple=lambda ranks: 2,
        rank_multiple=2,
        fixed_chunks=2,
        placement=v_placement,
        split=True,
        chains=2,
        searched=False,
        note="its paper lets the result of a pair of passes leave when both have ended, which makes the bubble longer "
        "by (P/2 − 1)·I where F = I ≥ W and a pair takes F + B",
    ),
    "dualpipev": ScheduleKind(
        make=dualpipev,
        in_flight=None,
        chunked=True,
        summary="half of dualpipe: two chunks a rank in a V, parameters held once",
        steady_rounds=2,
        note="its paper lets the result of a pair of passes leave when both have ended, which makes the bubble longer "
        "by (P − 1)·I of a chunk where F = I ≥ W and a pair takes F + B",
        fixed_chunks=2,
        placement=v_placement,
        split=True,
        searched=False,
    ),
    "zeropp": ScheduleKind(
        make=zeropp,
        in_flight=None,
        chunked=True,
        summary="units of micro-batches go through several stages per rank, weight gradients fill bubbles",
        steady_rounds=None,
        split=True,
        depends_on=frozenset({"times", "unit"}),
        unit_fault=zeropp_unit_fault,
        usual_unit=lambda ranks, micro_batches: ranks,
        searched=False,
        unit_rounds=(2,),
    ),
}
