"""Count model states in host memory, and the bytes that passes copy to and from it.

Optimizer (ZeRO-Offload; Ren et al., arXiv 2101.06840): of a share of a rank's own elements the host has master copy,
moments and an fp32 sum of gradients, and takes their step. Gradients of a micro-batch leave in the type of the wire
while the weight gradients of the next block are computed, and the device holds two blocks of them. That needs
gradients that are final when a pass has made them: reduced with each micro-batch, or not at all because the states have
no copies. Under other exchanges, or where the stack says so, they are summed on the device and leave before the step.

Parameters (DeepSpeed's ``offload_param``): each F and each B (or I) fetches them layer by layer, one ahead, so that two
blocks of them are whole on the device. After the step parameters go where their home is.

Shares are cut in whole elements of all that a rank holds: of each parameter the first ones
(``runtime/state/on_host/shard_split.py``). A table that embedding and head share on one rank leaves with each of them,
and is fetched as it is gathered. Every function takes one plan or arrays of plans.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from meshwright.plans.forms.host_offload import HostShares
from meshwright.program.local_shape import LocalShape, Mode, Number
from meshwright.program.lowering.pass_bodies import Shared, units_needed
from meshwright.program.model_states.state_elements import (
    DENSE_REPLICA_AXES,
    DENSE_SHARD_AXES,
    EXPERT_REPLICA_AXES,
    EXPERT_SHARD_AXES,
    Elements,
    StateKind,
    bytes_per_element,
)
from meshwright.program.model_states.zero_sharding import SHARDED, held_elements
from meshwright.program.pass_items import PassKind
from meshwright.stack.stack import Stack

DENSE_COPIES = (*DENSE_SHARD_AXES, *DENSE_REPLICA_AXES)
EXPERT_COPIES = (*EXPERT_SHARD_AXES, *EXPERT_REPLICA_AXES)
"""Axes whose ranks share or repeat a state, so that they reduce its gradients."""
BLOCKS_ON_DEVICE = 2
"""Blocks of gradients that leave, or of parameters that come, which the device holds at once."""
SUM_BYTES = 4
"""An element of the sum of gradients on the host."""
FETCHING = ("F", "B", "I")
"""Passes that need parameters."""


@dataclass(frozen=True, slots=True)
class PassCopies:
    """Bytes that one pass over a stage copies to the host and back, and that the host moves to add gradients up."""

    out_bytes: Number = 0
    back_bytes: Number = 0
    host_bytes: Number = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostStates:
    """The states of a plan, or of plans that share their sharding, that are on the hosts.

    ``leave``: gradients leave with each micro-batch, of each plan; ``reduced``: after a reduction with each.
    """

    shares: HostShares
    sharding: str
    shape: LocalShape
    stack: Stack
    leave: Number
    reduced: bool = False

    def on_host(self, kind: StateKind, held: Number) -> Number:
        """Return how many of a rank's ``held`` elements of a kind are on the host between passes."""
        shares = {
            "optimizer": self.shares.optimizer,
            "parameter": self.shares.parameters,
            "gradient": self.shares.optimizer * self.leave,
        }
        return np.floor(shares[kind] * held)

    def copies(
        self,
        blocks: Sequence[int],
        elements: Mapping[int, Elements],
        kind: PassKind,
        shared: Shared | None,
        head: int | None,
    ) -> PassCopies:
        """Return the copies of one pass over a stage of these blocks.

        ``shared`` are the ends that share a table, ``head`` is the block whose weight gradients I computes.
        """
        back: Number = 0
        out: Number = 0
        added: Number = 0
        if self.shares.parameters and kind in FETCHING:
            order = blocks if kind == "F" else tuple(reversed(blocks))
            fetched = [elements[block] for of in units_needed(order, kind, shared) for block in of]
            here = self.on_host("parameter", self._held(fetched, "parameter"))
            back = bytes_per_element("parameter", self.stack) * here
        if self.shares.optimizer:
            made = [block for block in blocks if self._makes_gradients(kind, is_head=block == head)]
            held = self._held([elements[block] for block in made], "optimizer")
            if shared is not None and shared[1] in made and not self.reduced:
                held = held + elements[shared[0]].dense - elements[shared[0]].whole
            here, wire = self.on_host("gradient", held), self.stack.gradient_communication_bytes
            out, added = wire * here, (2 * wire + 2 * SUM_BYTES) * here
        return PassCopies(out, back, added)

    def _makes_gradients(self, kind: PassKind, *, is_head: bool) -> bool:
        """Return true if gradients of a block's weights leave in a pass."""
        early = is_head and not self.reduced
        return kind == "B" or kind == ("I" if early else "W")

    def step_copies(self, owned: Number) -> PassCopies:
        """Return the copies around the step of a rank that owns so many elements of optimizer states.

        Gradients that have waited for the step leave, in the type in which they were summed. Parameters that the host
        has stepped and the device keeps come back; those of the other kind go out.
        """
        here = self.on_host("optimizer", owned)
        parameters = np.floor(self.shares.parameters * owned)
        size = bytes_per_element("parameter", self.stack)
        late = bytes_per_element("gradient", self.stack) * (here - self.on_host("gradient", owned))
        return PassCopies(
            late + size * np.maximum(parameters - here, 0), size * np.maximum(here - parameters, 0)
        )

    def buffer_bytes(self, blocks: Sequence[Elements]) -> Number:
        """Return the bytes on the device of gradients that leave and of parameters that come, of a rank's blocks."""
        result: Number = 0
        if self.shares.parameters:
            largest = self._largest(blocks, "parameter")
            size = bytes_per_element("parameter", self.stack)
            result = result + size * BLOCKS_ON_DEVICE * largest
        if self.shares.optimizer:
            largest = self._largest(blocks, "optimizer")
            wire = self.stack.gradient_communication_bytes
            result = result + wire * self.on_host("gradient", BLOCKS_ON_DEVICE * largest)
        return result

    def _largest(self, blocks: Sequence[Elements], kind: StateKind) -> Number:
        largest: Number = 0
        for block in blocks:
            largest = np.maximum(largest, self._held([block], kind))
        return largest

    def _held(self, blocks: Sequence[Elements], kind: StateKind) -> Number:
        sharded = kind in SHARDED[self.sharding]
        held = (held_elements(block, kind, sharded, self.shape).total for block in blocks)
        return sum(held, start=0)


def gradients_leave(
    sharding: str, mode: Mode, copies: Number, stack: Stack, *, chains: int, spread: bool
) -> Number:
    """Return 1 where the gradients of an offloaded optimizer leave with each micro-batch, else 0.

    ``copies``: ranks that share or repeat a state, 1 where no gradient is reduced; ``chains``: times that the pipeline
    holds the model; ``spread``: its ranks share the vocabulary.
    """
    if stack.keeps_offloaded_gradients or chains > 1 or spread:
        return 0
    if mode.reduce == "per-micro-batch":
        return 1
    alone = sharding in ("none", "zero1") and mode.reduce == "per-step"
    return np.asarray(np.asarray(copies) == 1, dtype=np.int64) if alone else 0


def host_bytes(stack: Stack, optimizer: Number, parameter: Number) -> Number:
    """Return the bytes on the host of so many elements of optimizer states and of parameters there."""
    states = bytes_per_element("optimizer", stack) + SUM_BYTES
    return states * optimizer + bytes_per_element("parameter", stack) * parameter
