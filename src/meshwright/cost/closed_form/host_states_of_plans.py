"""Count the model states in host memory of many plans at once."""

from typing import NamedTuple

import numpy as np

from meshwright.cost.operators.pass_prices import Mesh
from meshwright.plans.forms.host_offload import HostShares
from meshwright.program.local_shape import LocalShape, Mode
from meshwright.program.model_states.states_on_host import (
    DENSE_COPIES,
    EXPERT_COPIES,
    HostStates,
    gradients_leave,
)
from meshwright.stack.stack import Stack


class PipelineWays(NamedTuple):
    """The number of chains of stages, whether ranks share the vocabulary, and the model's experts, if any."""

    chains: int
    spread: bool
    experts: object | None


def array_host_states(
    shares: HostShares,
    sharding: str,
    mode: Mode,
    stack: Stack,
    shape: LocalShape,
    mesh: Mesh,
    ways: PipelineWays,
    axes: int = 1,
) -> HostStates:
    """Return the states on the hosts of plans with these shapes: (n,), or (n, 1) for 2 axes."""
    copies = mesh.group(DENSE_COPIES)[0]
    if ways.experts is not None:
        copies = np.maximum(copies, mesh.group(EXPERT_COPIES)[0])
    leave = gradients_leave(sharding, mode, copies, stack, chains=ways.chains, spread=ways.spread)
    if axes > 1 and np.ndim(leave):
        leave = np.asarray(leave)[:, None]
    reduced = mode.reduce == "per-micro-batch"
    return HostStates(
        shares=shares, sharding=sharding, shape=shape, stack=stack, leave=leave, reduced=reduced
    )
