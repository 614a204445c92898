"""The input of plan rules (``plans/rules/check_plan.py``): a plan with its model, cluster and stack.

Rules speak in the words of the short form (``layout.tp``); ``with_long_form_field`` renames the fields where the
plan cannot be said in short.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import prod

from meshwright.cluster.cluster import Cluster
from meshwright.errors import InputError, Problem
from meshwright.model.architecture import Architecture
from meshwright.model.graph import ModelGraph
from meshwright.plans.forms.long import Grid, Layout, LongPlan
from meshwright.plans.layers.plan_of_layout import sequences_together
from meshwright.plans.rules.not_in_this_release import workload_of
from meshwright.plans.synchronisation.synchronisation import shares_per_replica
from meshwright.stack.stack import Stack
from meshwright.workload.optimizers import OPTIMIZERS
from meshwright.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class RuleInput:
    """One plan with one layout, and what it is for."""

    plan: LongPlan
    model: ModelGraph
    cluster: Cluster
    stack: Stack

    @property
    def layout_name(self) -> str:
        """The layout's name."""
        return next(iter(self.plan.layouts))

    @property
    def layout(self) -> Layout:
        """The layout."""
        return self.plan.layouts[self.layout_name]

    @property
    def grid(self) -> Grid:
        """Degrees of the attention mesh."""
        return self.layout.grid

    @property
    def arch(self) -> Architecture:
        """The model's neutral facts."""
        return self.model.architecture

    @property
    def pp(self) -> int:
        """Pipeline ranks."""
        return self.plan.pipeline.ranks

    @property
    def degrees(self) -> dict[str, int]:
        """Degrees by axis, in the order of the product rule."""
        grid = self.grid
        return {
            "pp": self.pp,
            "dp_replicate": grid.dp_replicate,
            "dp_shard": grid.dp_shard,
            "cp": grid.cp,
            "tp": grid.tp,
        }

    @property
    def stage_ranks(self) -> int:
        """Ranks of one stage: dp_replicate·dp_shard·cp·tp."""
        return prod(self.degrees.values()) // self.pp

    @property
    def workload(self) -> Workload | None:
        """The workload; None where its numbers make none (``plans/rules/not_in_this_release.py`` says why)."""
        try:
            return workload_of(self.plan)
        except InputError:
            return None

    @property
    def replicas(self) -> int:
        """Replicas with sequences of their own, by dp_replicate: half of them where two share each sequence."""
        optimizer = self.plan.workload.optimizer_in_full
        shared = optimizer.name in OPTIMIZERS and not any(True for _ in optimizer.problems())
        halves = shared and optimizer.splits_perturbations and self.grid.dp_replicate % 2 == 0
        return self.grid.dp_replicate // 2 if halves else self.grid.dp_replicate

    @property
    def sequences_at_once(self) -> int:
        """Sequences of all replicas in one micro-batch: dp_replicate·dp_shard·micro_batch, or the sum of shares."""
        if self.layout.batch_share is not None:
            return sequences_together(self.plan)
        return self.replicas * self.grid.dp_shard * self.plan.pipeline.micro_batch

    @property
    def micro_batches(self) -> int | None:
        """Micro-batches of one step; None where the global batch cannot be divided."""
        workload = self.workload
        if workload is None or workload.global_batch % self.sequences_at_once:
            return None
        return workload.global_batch // self.sequences_at_once * shares_per_replica(self.plan.synchronise)


Rule = Callable[[RuleInput], Iterator[Problem]]


def largest_divisor(number: int, limit: int) -> int:
    """Return the largest divisor of ``number`` that is at most ``limit``."""
    return next(d for d in range(max(1, min(number, limit)), 0, -1) if number % d == 0)


def with_long_form_field(problem: Problem, layout: str) -> Problem:
    """``problem`` with its field named as in the long form, for a layout of this name."""
    field = LONG_FIELDS.get(problem.field)
    return replace(problem, field=field.format(layout=layout)) if field else problem


LONG_FIELDS = {
    "layout": "layouts.{layout}",
    "layout.pp": "pipeline.placement",
    "layout.dp_replicate": "layouts.{layout}.grid.dp_replicate",
    "layout.dp_shard": "layouts.{layout}.grid.dp_shard",
    "layout.cp": "layouts.{layout}.grid.cp",
    "layout.tp": "layouts.{layout}.grid.tp",
    "layout.ep": "layouts.{layout}.experts.ep",
    "layout.etp": "layouts.{layout}.experts.etp",
    "layout.sequence_parallel": "layouts.{layout}.sequence_parallel",
    "layout.rank_order": "layouts.{layout}.order",
    "layout.node_order": "layouts.{layout}.node_order",
    "layout.expert_order": "layouts.{layout}.expert_order",
    "sharding": "states",
    "pipeline.schedule": "pipeline.schedule.name",
    "pipeline.virtual_stages": "pipeline.placement",
    "recompute": "layers",
}
