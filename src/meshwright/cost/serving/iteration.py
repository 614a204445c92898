"""Seconds of one iteration of a replica: a chain of operators, messages of a pipeline, and the host.

    way = Σ_blocks repeats · Σ_items t_item + (pp − 1)·t_message + pp·h,     h = host + n_d·sequence
    t   = max(way, pp·(largest sum of a stage + h))

``host`` and ``sequence`` are an engine's seconds between kernels, for each stage of an iteration and for each sequence
in it: scheduling, sampling parameters, handing tokens back (``stack/serving``). Multi-token prediction is left out.
The result of shared experts is summed over tp with that of the routed ones, so that it needs no all-reduce of its own
unless attention_dp keeps the rows of different ranks apart.

A pipeline has as many micro-batches under way as stages. A micro-batch begins its next iteration when it has passed all
stages, and when the slowest of them, which may be that of the head, has had its turn with all the others. A Program of
such iterations, played (``simulate/serving/iteration_player.py``), takes as long; there a message is as slow as the
boundary that it crosses, while here all leave the fast domain if the replica does.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from meshwright.cost.serving.hardware_times import ACTIVATION_BYTES, ServingTimes
from meshwright.cost.serving.operators import IterationLoad, ServingLocal
from meshwright.cost.serving.overlap_forms import block_form_seconds, serial_seconds
from meshwright.model.graph import ModelGraph
from meshwright.program.local_shape import Number
from meshwright.program.serving.serving_degrees import ReplicaDegrees
from meshwright.program.serving.stage_layers import largest_sum, served_layers
from meshwright.program.serving.storage_formats import StorageFormats


class Overheads(NamedTuple):
    """An engine's seconds of the host in each stage of an iteration, and for each sequence in it."""

    host_s: float = 0.0
    sequence_s: float = 0.0


NO_OVERHEADS = Overheads()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaCost:
    """All that the seconds of iterations depend on besides their tokens."""

    model: ModelGraph
    times: ServingTimes
    degrees: ReplicaDegrees
    formats: StorageFormats
    overheads: Overheads = NO_OVERHEADS
    expert_shares: tuple[float, ...] | None = None
    overlap: str = "none"
    allreduce: str = "auto"

    def local(self, load: IterationLoad) -> ServingLocal:
        """Return the inputs of operators' times for an iteration."""
        return ServingLocal(
            times=self.times,
            degrees=self.degrees,
            load=load,
            formats=self.formats,
            arch=self.model.architecture,
            expert_shares=self.expert_shares,
            allreduce=self.allreduce,
        )


def iteration_seconds(cost: ReplicaCost, load: IterationLoad) -> Number:
    """Return the seconds of one iteration."""
    local, layers, model = cost.local(load), served_layers(cost.model), cost.model
    pp = np.asarray(cost.degrees.pp)
    of_blocks = {
        index: block_form_seconds(model.blocks[index], local, cost.overlap) for index in dict.fromkeys(layers)
    }
    ends = serial_seconds(model.embed, local), serial_seconds(model.head, local)
    body: Number = 0.0
    for index, seconds in of_blocks.items():
        body = body + layers.count(index) * seconds
    host = stage_host_seconds(cost, local)
    way = body + ends[0] + ends[1] + (pp - 1) * _message_seconds(cost, local) + pp * host
    if np.all(pp == 1):
        return way
    return np.maximum(way, pp * (largest_sum(layers, pp, of_blocks, ends) + host))


def stage_host_seconds(cost: ReplicaCost, local: ServingLocal) -> Number:
    """Return the seconds of the host in one stage of an iteration."""
    return cost.overheads.host_s + cost.overheads.sequence_s * local.logit_rows


def _message_seconds(cost: ReplicaCost, local: ServingLocal) -> Number:
    """Return the seconds of the stream's way from one stage to the next."""
    forms, degrees = cost.times.forms, cost.degrees
    crosses = np.asarray(degrees.devices) > forms.domain
    moved = ACTIVATION_BYTES * cost.model.architecture.hidden * local.rows / degrees.tp
    return forms.p2p(moved, crosses)
