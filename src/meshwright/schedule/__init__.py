"""Pipeline schedules: pure functions that order forward and backward passes on each pipeline rank.

``SCHEDULES`` is the table that command line, documentation and contract tests read.
"""

from meshwright.schedule.generators import ScheduleKind
from meshwright.schedule.gpipe import gpipe, gpipe_in_flight
from meshwright.schedule.interleaved import interleaved, interleaved_in_flight
from meshwright.schedule.one_f_one_b import one_f_one_b, one_f_one_b_in_flight

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
}

KNOWN_SCHEDULES: tuple[str, ...] = (
    *SCHEDULES,
    "looped-bfs",
    "zb-h1",
    "zb-h2",
    "zero-bubble",
    "zb-v",
    "v-half",
    "v-min",
    "dualpipe",
    "dualpipev",
    "zeropp",
)
"""Names of the plan language; those without an entry in ``SCHEDULES`` are refused by name."""
