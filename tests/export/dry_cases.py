"""Small Programs, and targets that do exactly what they mean, for the tests of export/dry."""

from dataclasses import replace

from meshwright.export.dry.compare import compare
from meshwright.export.dry.differences import Difference, PlanKind
from meshwright.export.dry.meant import Seat
from meshwright.export.dry.ran import Issued, Ran
from meshwright.export.dry.result import Compared
from meshwright.plan.resolve import Resolved, resolve
from meshwright.plan.short import ShortPlan
from meshwright.program.lower import lower

KIND = PlanKind("zero3", False, "none")


def resolved(**changes: object) -> Resolved:
    """A plan of 2 × 2 ranks, or with ``changes`` of its keys."""
    plan: dict[str, object] = {
        "plan": 1,
        "model": "llama-3.1-8b",
        "cluster": "h100-sxm-80gb x 4",
        "stack": "torchtitan",
        "workload": {"seq_len": 512, "global_batch": 4},
        "layout": {"dp_shard": 2, "tp": 2},
        "sharding": "zero3",
    }
    return resolve(ShortPlan.model_validate(plan | changes))


def seat(pipeline_rank: int = 0, **changes: object) -> Seat:
    """A rank's place in the Program of such a plan."""
    found = resolved(**changes)
    setting = found.setting
    program = lower(found.long, setting.model, setting.cluster, setting.workload, setting.stack)
    return Seat(program, pipeline_rank)


def faithful(at: Seat) -> Ran:
    """A target that does what the Program means, in its order."""
    issued = [Issued(s.kind, s.members, s.bytes) for moment in at.step() for s in moment]
    alone = tuple(one for one in issued if len(one.members) > 1 and one.bytes)
    held = at.program.held_elements
    return Ran(
        rank=at.rank,
        ranks=at.program.grid.ranks,
        parameters=held(at.pipeline_rank, "parameter"),
        optimizer=held(at.pipeline_rank, "optimizer"),
        rows=0,
        made=tuple({one.members for one in alone}),
        issued=alone,
        seconds=0.0,
    )


def held(at: Seat, ran: Ran, *rows: Difference, kind: PlanKind = KIND) -> Compared:
    """The comparison, with only these rows of differences."""
    return compare(at, ran, kind, rows)


def without(ran: Ran, place: int) -> Ran:
    """The same with one collective less."""
    return replace(ran, issued=ran.issued[:place] + ran.issued[place + 1 :])


def place_of(ran: Ran, kind: str, count: int = 0) -> int:
    """Where the target issues a collective of a kind for the first time, or for the next ones."""
    return [i for i, one in enumerate(ran.issued) if one.kind == kind][count]
