"""Goodput: the fraction of time that becomes training progress on a cluster whose nodes fail.

    share = (1 − stopped)·useful

``stopped``: the share in which too few whole nodes are left (``spare_nodes.py``). ``useful``: of the rest, the share
that becomes work that is kept (``checkpoint_interval.py``). The product is exact for Poisson failures in the hours in
which all nodes work: stopping and going on again changes nothing for them (a test plays both together, failure by
failure). It is the share of a long training; one that is shorter than the time between two failures may be lucky.

A checkpoint has the working parameters and the optimizer's states once, however often the plan holds them; all nodes
write it together. Training waits for all of it, or with ``checkpoint_async`` for what ``checkpoint_pause.py`` says. A
restart takes ``restart_s`` and reads it again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil, inf

from meshwright.economy.assumptions import Assumptions
from meshwright.economy.checkpoint_interval import best_interval, useful_share
from meshwright.economy.checkpoint_pause import BackgroundCopies, copies_of_plan, even_copies
from meshwright.economy.spare_nodes import best_spare_nodes, stopped_share
from meshwright.plans.setting import Setting
from meshwright.program.local_shape import LocalShape
from meshwright.program.model_states.hidden_matrices import (
    elements_by_optimizer,
    held_matrices,
    stage_matrices,
)
from meshwright.program.model_states.state_elements import Elements, StateKind, block_elements
from meshwright.program.model_states.zero_sharding import state_bytes
from meshwright.result import Report
from meshwright.units import DAY_S, GIGA, HOUR_S

NOTHING = 1e-6
"""A share below which a training does not get on."""
WORTH_SAVING = 0.0001
"""Checkpoints that cost no waiting are only as close as saves this share of the time: others use the storage too."""


@dataclass(frozen=True, slots=True)
class FailureModel:
    """The effect of failures on a job, before anything is known of its plan except its states. Times in seconds.

    ``mtbf_s`` is the time between two failures of any of its nodes, infinite where none fails. ``events`` is how many
    failures the rate was counted from, None where its source has no count. ``interval_s`` is the work between two
    checkpoints, None for the best at a step time. ``copies``: of checkpoints that are saved in the background; None:
    training waits for ``write_s``.
    """

    nodes: int
    mtbf_s: float
    checkpoint_bytes: float
    write_s: float
    restart_s: float
    interval_s: float | None
    stopped: float
    source: str
    repair_s: float = 0.0
    spare_nodes: int = 0
    events: int | None = None
    copies: BackgroundCopies | None = None

    @property
    def on_disk_s(self) -> float:
        """Seconds from the beginning of a checkpoint to its commitment."""
        return self.write_s if self.copies is None else self.copies.on_disk_s(self.write_s)

    def planned_work_s(self, step_s: float, mtbf_s: float | None = None) -> float:
        """Return the work between two checkpoints, of which a step may be a part.

        Where none is given it is the best for failures ``mtbf_s`` apart. In the background that is at least as much as
        the disk takes, and so much that half of it is ``WORTH_SAVING`` of the time between failures.
        """
        apart_s = self.mtbf_s if mtbf_s is None else mtbf_s
        if self.interval_s is not None:
            return self.interval_s
        if self.copies is None:
            return best_interval(self.write_s, apart_s)
        pause_s = self.pause_s(step_s, inf)
        return max(self.on_disk_s - pause_s, 2 * WORTH_SAVING * apart_s, best_interval(pause_s, apart_s))

    def work_s(self, step_s: float) -> float:
        """Work between two checkpoints: at least a step."""
        return max(self.planned_work_s(step_s), step_s)

    def pause_s(self, step_s: float, work_s: float) -> float:
        """Return the seconds that training waits for a checkpoint, with the work between two."""
        return self.write_s if self.copies is None else self.copies.pause_s(step_s, work_s, self.write_s)

    def useful_at(self, step_s: float, work_s: float, mtbf_s: float) -> float:
        """Return the useful share of the time for ``work_s`` between checkpoints and ``mtbf_s`` between failures.

        Work goes on while a checkpoint is written behind the pause. A failure meanwhile throws away an interval more:
        with a share of e^(−(on disk − pause)/M), which is that of as many more seconds of restart.
        """
        pause_s = self.pause_s(step_s, work_s)
        return useful_share(work_s, pause_s, self.restart_s + self.on_disk_s - pause_s, mtbf_s)

    def share(self, step_s: float) -> float:
        """Goodput at a step time; steps over it grow with the step."""
        return (1 - self.stopped) * self.useful(step_s)

    def useful(self, step_s: float) -> float:
        """Return the share of the time in which all nodes work that becomes training."""
        return self.useful_at(step_s, self.work_s(step_s), self.mtbf_s)

    def of_plan(self, setting: Setting, report: Report) -> "FailureModel":
        """Return the model with the copies of a plan; the same where training waits for the writing."""
        if self.copies is None:
            return self
        return replace(self, copies=copies_of_plan(setting, self.checkpoint_bytes, report))


def failure_model(setting: Setting, assumed: Assumptions) -> FailureModel | None:
    """Return the failure model of a job on a cluster; None where the failure rate is unknown."""
    rate = setting.cluster.failures_per_1000_node_days
    if rate is None:
        return None
    nodes = job_nodes(setting)
    mtbf = 1000 * DAY_S / (rate.value * nodes) if rate.value else inf
    size = checkpoint_bytes(setting)
    write = size / (nodes * assumed.storage_gbyte_per_s_per_node * GIGA)
    own, repair_s = assumed.checkpoint_every_s, assumed.repair_hours * HOUR_S
    spares = assumed.spare_nodes
    if spares is None:
        pool = setting.cluster.pool
        priced = pool.usd_per_device_hour is not None
        spares = best_spare_nodes(mtbf, repair_s, pool.count, pool.node.devices, priced=priced)
    return FailureModel(
        nodes=nodes,
        mtbf_s=mtbf,
        checkpoint_bytes=size,
        write_s=write,
        restart_s=assumed.restart_s + write,
        interval_s=best_interval(write, mtbf) if own is None and not assumed.checkpoint_async else own,
        stopped=stopped_share(mtbf, repair_s, spares),
        source=f"{rate.value:g} failures per 1000 node-days: {rate.source}",
        repair_s=repair_s,
        spare_nodes=spares,
        events=rate.events,
        copies=even_copies(setting, size) if assumed.checkpoint_async else None,
    )


def job_nodes(setting: Setting) -> int:
    """Nodes that work, the last of them perhaps in part."""
    return sum(ceil(pool.count / pool.node.devices) for pool in setting.cluster.pools)


def checkpoint_bytes(setting: Setting) -> float:
    """Working parameters and optimizer states of what is trained, once; all parameters if adapters change them."""
    whole = LocalShape(
        micro_batch=1, seq_len=1, cp=1, tp=1, ep=1, etp=1, vocab_multiple=setting.stack.vocab_multiple
    )
    blocks, stack = setting.model.blocks, setting.stack
    elements = block_elements(blocks, whole, ends_together=True)
    by_element = elements_by_optimizer(blocks, elements, whole, stack, ends_together=True)
    every = [blocks[block] for block, repeat in setting.model.chain for _ in range(repeat)]
    matrices = sum(held_matrices(stage_matrices(every, stack), "none", whole, stack))
    states: tuple[tuple[StateKind, Mapping[int, Elements]], ...] = (
        ("parameter", elements),
        ("optimizer", by_element),
    )
    return float(
        sum(
            (
                repeat * state_bytes(_saved(counted[block], kind), kind, False, whole, stack)
                for block, repeat in setting.model.chain
                for kind, counted in states
            ),
            start=stack.matrix_optimizer_bytes * matrices,
        )
    )


def _saved(elements: Elements, kind: StateKind) -> Elements:
    trained = elements.of("optimizer")
    return elements if kind == "parameter" and trained.own else trained
