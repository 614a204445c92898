"""Small Programs, and targets that do exactly what they mean, for the tests of export/dry."""

from dataclasses import replace

from meshwright.frameworks.target_checks.comparison_result import ClassComparison
from meshwright.frameworks.target_checks.known_differences import Difference, PlanKind
from meshwright.frameworks.target_checks.planned_collectives import RankView
from meshwright.frameworks.target_checks.recorded_step import IssuedCollective, RecordedStep
from meshwright.frameworks.target_checks.step_comparison import compare
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.resolve import Resolved, resolve
from meshwright.program.lowering.lower_plan import lower

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


def seat(pipeline_rank: int = 0, **changes: object) -> RankView:
    """A rank's place in the Program of such a plan."""
    found = resolved(**changes)
    setting = found.setting
    program = lower(found.long, setting.model, setting.cluster, setting.workload, setting.stack)
    return RankView(program, pipeline_rank)


def faithful(at: RankView) -> RecordedStep:
    """A target that does what the Program means, in its order."""
    issued = [IssuedCollective(s.kind, s.members, s.bytes) for moment in at.step() for s in moment]
    alone = tuple(one for one in issued if len(one.members) > 1 and one.bytes)
    held = at.program.held_elements
    return RecordedStep(
        rank=at.rank,
        ranks=at.program.parts.ranks,
        parameters=held(at.pipeline_rank, "parameter"),
        optimizer=held(at.pipeline_rank, "optimizer"),
        rows=0,
        made=tuple({one.members for one in alone}),
        issued=alone,
        seconds=0.0,
    )


def held(at: RankView, ran: RecordedStep, *rows: Difference, kind: PlanKind = KIND) -> ClassComparison:
    """The comparison, with only these rows of differences."""
    return compare(at, ran, kind, rows)


def without(ran: RecordedStep, place: int) -> RecordedStep:
    """The same with one collective less."""
    return replace(ran, issued=ran.issued[:place] + ran.issued[place + 1 :])


def place_of(ran: RecordedStep, kind: str, count: int = 0) -> int:
    """Where the target issues a collective of a kind for the first time, or for the next ones."""
    return [i for i, one in enumerate(ran.issued) if one.kind == kind][count]
