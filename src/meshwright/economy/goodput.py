"""Goodput: the fraction of time that becomes training progress on a cluster whose nodes fail.

    share = (1 − stopped)·useful

``stopped``: the share in which too few whole nodes are left (``spare_nodes.py``). ``useful``: of the rest, the share
that becomes work that is kept (``checkpoint_interval.py``). The product is exact for Poisson failures in the hours in
which all nodes work: stopping and going on again changes nothing for them (a test plays both together, failure by
failure). It is the share of a long training; one that is shorter than the time between two failures may be lucky.

A checkpoint has the working parameters and the optimizer's states once, however often the plan holds them; all nodes
write it together, and training waits for it. A restart takes ``restart_s`` and reads it again.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, inf

from meshwright.economy.assumptions import Assumptions
from meshwright.economy.checkpoint_interval import best_interval, useful_share
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
from meshwright.units import DAY_S, GIGA, HOUR_S

NOTHING = 1e-6
"""A share below which a training does not get on."""


@dataclass(frozen=True, slots=True)
class FailureModel:
    """The effect of failures on a job, before anything is known of its plan except its states. Times in seconds.

    ``mtbf_s`` is the time between two failures of any of its nodes, infinite where none fails. ``events`` is how many
    failures the rate was counted from, None where its source has no count.
    """

    nodes: int
    mtbf_s: float
    checkpoint_bytes: float
    write_s: float
    restart_s: float
    interval_s: float
    stopped: float
    source: str
    repair_s: float = 0.0
    spare_nodes: int = 0
    events: int | None = None

    def work_s(self, step_s: float) -> float:
        """Work between two checkpoints: at least a step."""
        return max(self.interval_s, step_s)

    def share(self, step_s: float) -> float:
        """Goodput at a step time; falls as steps get longer than the best interval."""
        return (1 - self.stopped) * self.useful(step_s)

    def useful(self, step_s: float) -> float:
        """Return the share of the time in which all nodes work that becomes training."""
        return useful_share(self.work_s(step_s), self.write_s, self.restart_s, self.mtbf_s)


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
        interval_s=best_interval(write, mtbf) if own is None else own,
        stopped=stopped_share(mtbf, repair_s, spares),
        source=f"{rate.value:g} failures per 1000 node-days: {rate.source}",
        repair_s=repair_s,
        spare_nodes=spares,
        events=rate.events,
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
