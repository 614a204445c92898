"""Find the weight matrices that Muon updates, and divide them among the ranks of a sharding group.

Every weight of a layer with two dims is one: q, k, v, o, gate, up, down, routers; of a weight with three dims each
expert's. A stack that orthogonalises some of an operator's matrices as one says so (``Stack.joint_matrices``); they are
stacked along their outputs. Embedding, head, tables of the vocabulary, norms and biases are the other optimizer's.

Under zero1 and zero2 the ranks of a sharding group own whole matrices: all of a stage are sorted by the FLOPs of their
orthogonalisation and dealt in turn, the dearest first, those of experts by themselves. The first rank then has the
most, at most one matrix above the mean, and its share is counted. With R ranks and C_k matrices up to and with kind k
it owns ⌈C_k/R⌉ − ⌈C_(k−1)/R⌉ of kind k. Where parameters are cut too, states are cut evenly and matrices are gathered
for the step.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from meshwright.model.graph import Block
from meshwright.model.named_tensors import is_matrix
from meshwright.model.operators.operator_types import Operator, Parameter
from meshwright.program.local_shape import LocalShape, Number
from meshwright.program.model_states.state_elements import Elements, optimizer_elements
from meshwright.program.model_states.zero_sharding import SHARDED
from meshwright.stack.stack import Stack
from meshwright.workload.optimizers.muon import DISTRIBUTED, DUPLICATED

FIRST = (0, 0)
"""Places of the rank with most among those that share dense states, and those that share experts'."""
MATRICES = {False: "matrices", True: "matrices.experts"}
"""Names of the rows of the state table for Muon's states of a stage; True: the experts'."""


@dataclass(frozen=True, slots=True)
class HiddenMatrix:
    """``count`` equal matrices of a layer (those of all experts, or 1), in the whole model.

    ``outputs`` are the rows of each part that is orthogonalised with the others; ``cut`` is the side that tp cuts, or
    etp of an ``expert``.
    """

    outputs: tuple[int, ...]
    inputs: int
    count: int
    cut: Literal["outputs", "inputs"] | None
    expert: bool

    def local_count(self, shape: LocalShape) -> Number:
        """Matrices of a layer on one rank of ep."""
        return np.ceil(self.count / shape.ep) if self.expert else self.count

    def width(self, shape: LocalShape) -> Number:
        """Ranks that share a matrix; 1 if tensor parallelism does not cut it."""
        return 1 if self.cut is None else shape.etp if self.expert else shape.tp

    def whole(self) -> tuple[int, int]:
        """Return outputs and inputs of the whole matrix."""
        return sum(self.outputs), self.inputs

    def local(self, shape: LocalShape) -> tuple[Number, Number]:
        """Return outputs and inputs of one rank's block."""
        width = self.width(shape)
        if self.cut == "inputs":
            return sum(self.outputs), np.ceil(self.inputs / width)
        return sum(np.ceil(rows / width) for rows in self.outputs), self.inputs

    def elements(self, shape: LocalShape) -> Number:
        """Elements of one rank's block."""
        outputs, inputs = self.local(shape)
        return outputs * inputs

    def flops(self, shape: LocalShape, steps: int, mode: str) -> Number:
        """FLOPs of the orthogonalisation of one matrix on each of its ranks: steps·(4·m²·n + 2·m³), m ≤ n.

        ``distributed`` sums Gram matrices of the side that is not cut: m is that side, n a rank's part of the other.
        """
        small, large = self.sides(shape, mode)
        return steps * (4.0 * small * small * large + 2.0 * small * small * small)

    def sides(self, shape: LocalShape, mode: str) -> tuple[Number, Number]:
        """Return m and n of the products that a rank computes."""
        outputs, inputs = self.whole() if mode == DUPLICATED else self.local(shape)
        small, large = np.minimum(outputs, inputs), np.maximum(outputs, inputs)
        if mode != DISTRIBUTED or self.cut is None:
            return small, large
        kept, cut = (inputs, outputs) if self.cut == "outputs" else (outputs, inputs)
        parted = np.asarray(self.width(shape)) > 1
        return np.where(parted, kept, small), np.where(parted, cut, large)


Matrices = Mapping[HiddenMatrix, int]
"""Matrices of a stage by kind, with the number of layers that have them."""


def matrix_parameters(block: Block) -> list[tuple[Operator, Parameter]]:
    """Return the parameters of a block that Muon takes, each with its operator."""
    if block.kind != "layer":
        return []
    return [
        (op, p)
        for op in block.operators
        for p in op.parameters
        if is_matrix(p.name, p.shape) and p.vocab_dim is None and p.trained
    ]


def matrix_names(blocks: Iterable[Block]) -> frozenset[str]:
    """Names of the parameters of layers that Muon takes."""
    return frozenset(p.name for block in blocks for _, p in matrix_parameters(block))


def stage_matrices(blocks: Iterable[Block], stack: Stack) -> Matrices:
    """Return the matrices of a stage's blocks by kind; none with another optimizer than Muon."""
    if not stack.optimizer.kind.of_matrices:
        return {}
    found: Counter[HiddenMatrix] = Counter()
    for block, times in Counter(blocks).items():
        for _, matrix in block_matrices(block, stack):
            found[matrix] += times
    return found


def block_matrices(block: Block, stack: Stack) -> list[tuple[tuple[str, ...], HiddenMatrix]]:
    """Return the matrices of a block that Muon takes, each with the names of the parameters that make it up."""
    groups: dict[tuple[object, ...], list[Parameter]] = {}
    for op, p in matrix_parameters(block):
        joint = op.name in stack.joint_matrices
        key = (op.name, p.shape[-1], p.tp_dim) if joint else (op.name, p.name)
        groups.setdefault((*key, op.place == "expert"), []).append(p)
    return [
        (tuple(p.name for p in parts), _matrix(parts, expert=bool(key[-1]))) for key, parts in groups.items()
    ]


def _matrix(parts: Sequence[Parameter], *, expert: bool) -> HiddenMatrix:
    shape, tp_dim = parts[0].shape, parts[0].tp_dim
    cut: Literal["outputs", "inputs"] | None = None
    if tp_dim is not None:
        cut = "inputs" if tp_dim == len(shape) - 1 else "outputs"
    return HiddenMatrix(
        outputs=tuple(p.shape[-2] for p in parts),
        inputs=shape[-1],
        count=shape[0] if len(shape) > 2 else 1,
        cut=cut,
        expert=expert,
    )


def elements_by_optimizer(
    blocks: Sequence[Block],
    elements: Mapping[int, Elements],
    shape: LocalShape,
    stack: Stack,
    ends_together: bool,
) -> Mapping[int, Elements]:
    """Return the elements of every block without the matrices that Muon takes; all of them with another optimizer."""
    if not stack.optimizer.kind.of_matrices:
        return elements
    return optimizer_elements(blocks, shape, matrix_names(blocks), ends_together=ends_together)


def owned_whole(sharding: str) -> bool:
    """Return true if ranks own whole matrices under this sharding (``effective_sharding``)."""
    return "optimizer" in SHARDED[sharding] and not gathered(sharding)


def gathered(sharding: str) -> bool:
    """Return true if parameters are cut, so that matrices are gathered for the step."""
    return "parameter" in SHARDED[sharding]


def stepped(
    matrices: Matrices, sharding: str, shape: LocalShape, stack: Stack, parts: tuple[int, int] = FIRST
) -> dict[HiddenMatrix, Number]:
    """Return how many matrices of each kind a rank orthogonalises.

    ``parts`` are its places among the ranks that share dense states, and experts'; the first ones have most.
    """
    every = {matrix: times * matrix.local_count(shape) for matrix, times in matrices.items()}
    if not every or not owned_whole(sharding):
        return every
    result: dict[HiddenMatrix, Number] = {}
    for expert, ranks, part in ((False, shape.shard, parts[0]), (True, shape.expert_shard, parts[1])):
        of_mesh = {matrix: count for matrix, count in every.items() if matrix.expert is expert}
        steps, mode = stack.optimizer.steps, stack.optimizer.tensor
        flops = [matrix.flops(shape, steps, mode) for matrix in of_mesh]
        result |= zip(of_mesh, _dealt(list(of_mesh.values()), flops, ranks, part), strict=True)
    return result


def owners(flops: Sequence[float], ranks: int) -> list[int]:
    """Return which of the ranks owns each of a stage's matrices, given in the order of their kinds: dealt in turn."""
    order = sorted(range(len(flops)), key=lambda place: -flops[place])
    turn = {place: number % ranks for number, place in enumerate(order)}
    return [turn[place] for place in range(len(flops))]


def _dealt(counts: Sequence[Number], flops: Sequence[Number], ranks: Number, part: int) -> Sequence[Number]:
    """Return how many of each kind one of the ranks owns, the dearest dealt first."""
    if not counts:
        return ()
    rows = np.broadcast_arrays(*counts, *flops, ranks)
    held, price = np.stack(rows[: len(counts)]), np.stack(rows[len(counts) : -1])
    order = np.argsort(-price, axis=0, kind="stable")
    ends = np.cumsum(np.take_along_axis(held, order, 0), axis=0)
    turns = np.ceil((ends - part) / rows[-1])
    owned = np.diff(turns, axis=0, prepend=np.zeros_like(turns[:1]))
    return list(np.take_along_axis(owned, np.argsort(order, axis=0, kind="stable"), 0))


def held_matrices(
    matrices: Matrices, sharding: str, shape: LocalShape, stack: Stack
) -> tuple[Number, Number]:
    """Elements of matrices whose states the rank with most holds: dense ones, and those of experts."""
    counts = stepped(matrices, sharding, shape, stack)
    dense, expert = (_elements(counts, shape, expert) for expert in (False, True))
    if gathered(sharding):
        return np.ceil(dense / shape.shard), np.ceil(expert / shape.expert_shard)
    return dense, expert


def _elements(counts: Mapping[HiddenMatrix, Number], shape: LocalShape, expert: bool) -> Number:
    parts = [number * m.elements(shape) for m, number in counts.items() if m.expert is expert]
    return sum(parts, start=0)
