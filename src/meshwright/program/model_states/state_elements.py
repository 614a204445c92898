"""Parameter elements on one rank after tp, ep and etp sharding, and the type of a row of the state table.

Dense and expert elements are apart, because the two live on different meshes. So are frozen parameters with a type of
their own (``packed``), and tensors that every data-parallel rank trains for itself (``own``). Uneven cuts are rounded
up, as frameworks pad them. What ZeRO cuts further: ``zero_sharding.py``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import numpy as np

from meshwright.model.graph import Block
from meshwright.model.operators.operator_types import LowRank, Norm, Operator, Parameter, StateSpace
from meshwright.program.local_shape import LocalShape, Number
from meshwright.program.program_parts import ProgramParts
from meshwright.stack.stack import Stack
from meshwright.stack.state_types import SCALE_BYTES
from meshwright.workload.base_types import stored_bytes

StateKind = Literal["parameter", "gradient", "optimizer", "cache"]
"""Caches are of keys, values and states of served sequences."""
STATE_KINDS: tuple[StateKind, ...] = ("parameter", "gradient", "optimizer")
"""The kinds of training."""

DENSE_SHARD_AXES = ("cp", "dp_shard")
DENSE_REPLICA_AXES = ("dp_replicate",)
EXPERT_SHARD_AXES = ("edp_shard",)
EXPERT_REPLICA_AXES = ("edp_replicate",)


@dataclass(frozen=True, slots=True)
class StateMesh:
    """The axes that a state's copies lie along: ``width`` cuts widths, ``shard`` cuts the rest, ``replica`` nothing."""

    width: str
    shard: tuple[str, ...]
    replica: tuple[str, ...]

    @property
    def axes(self) -> frozenset[str]:
        """All of them."""
        return frozenset((self.width, *self.shard, *self.replica))


DENSE_MESH = StateMesh("tp", DENSE_SHARD_AXES, DENSE_REPLICA_AXES)
EXPERT_MESH = StateMesh("etp", EXPERT_SHARD_AXES, EXPERT_REPLICA_AXES)
"""That of the experts, besides ep, which cuts their number."""
OWN_MESH = StateMesh("tp", (), ("cp",))
"""That of parameters which every data-parallel rank trains for itself."""


class Packed(NamedTuple):
    """Frozen parameters with a type of their own on one rank: their elements, and their bytes with all scales."""

    dense: Number = 0
    expert: Number = 0
    dense_bytes: Number = 0
    expert_bytes: Number = 0

    @property
    def bytes(self) -> Number:
        """Dense and expert bytes together."""
        return self.dense_bytes + self.expert_bytes


NOT_PACKED = Packed()


def is_some(number: Number) -> bool:
    """Return true if a number, or one of an array, is not 0."""
    return bool(number.any() if isinstance(number, np.ndarray) else number)


@dataclass(frozen=True, slots=True)
class Elements:
    """Elements of a block's parameters on one rank before data-parallel sharding.

    ``whole`` counts the part of ``dense`` that tp does not cut (norms, biases, routers), ``partial`` the part of that
    which every tp rank uses on heads of its own. ``trained`` are those that have gradients, None where all have.
    ``dense_tensors`` and ``expert_tensors`` count the parameters of a single block; sums of blocks do not have them.
    What is ``packed``, and ``own`` elements, count nowhere else but in ``whole`` and ``partial``.
    """

    dense: Number
    expert: Number
    whole: Number
    trained: "Elements | None" = None
    partial: Number = 0
    dense_tensors: int = 0
    expert_tensors: int = 0
    packed: Packed = NOT_PACKED
    own: Number = 0

    @property
    def count(self) -> Number:
        """Dense and expert elements together."""
        return self.dense + self.expert

    def of(self, kind: StateKind) -> "Elements":
        """Return the elements with a state of this kind: frozen ones have no gradient and no optimizer states."""
        return self if kind == "parameter" or self.trained is None else self.trained

    def mapped(self, change: Callable[[Number], Number]) -> "Elements":
        """Return the same with ``change`` applied to every number of elements or bytes."""
        return replace(
            self,
            dense=change(self.dense),
            expert=change(self.expert),
            whole=change(self.whole),
            partial=change(self.partial),
            trained=self.trained and self.trained.mapped(change),
            packed=self.packed if self.packed is NOT_PACKED else Packed(*map(change, self.packed)),
            own=change(self.own) if is_some(self.own) else 0,
        )


def block_elements(blocks: Sequence[Block], shape: LocalShape, *, ends_together: bool) -> dict[int, Elements]:
    """Elements of every block by its index.

    ``ends_together``: the ranks that hold the embedding hold all else too, so that a table that others read counts
    once, in the embedding. On ranks of their own the head and layers that read further tokens have a copy.
    """
    return optimizer_elements(blocks, shape, frozenset(), ends_together=ends_together)


def elements_of_parts(
    blocks: Sequence[Block], parts: ProgramParts, *, ends_together: bool
) -> dict[int, Elements]:
    """Elements of every block by its index, each with the local shape of its part."""
    of_parts = [block_elements(blocks, part.shape, ends_together=ends_together) for part in parts]
    return {block: of_parts[part][block] for block, part in enumerate(parts.of_blocks)}


def optimizer_elements(
    blocks: Sequence[Block], shape: LocalShape, left_out: frozenset[str], *, ends_together: bool
) -> dict[int, Elements]:
    """Elements of every block whose optimizer states count by element, without the parameters ``left_out``."""
    shared = embedding_names(blocks) if ends_together else frozenset[str]()
    return {
        index: local_elements(block, shape, left_out | (frozenset() if block.kind == "embed" else shared))
        for index, block in enumerate(blocks)
    }


def embedding_names(blocks: Sequence[Block]) -> frozenset[str]:
    """Names of the embedding's parameters; a tied head has one of them."""
    return frozenset(
        p.name for block in blocks if block.kind == "embed" for op in block.operators for p in op.parameters
    )


def local_elements(block: Block, shape: LocalShape, left_out: frozenset[str] = frozenset()) -> Elements:
    """Cut every parameter of a block over tp, or over ep and etp; those named in ``left_out`` do not count."""
    parameters = [
        (parameter, op)
        for op in block.operators
        for parameter in op.parameters
        if parameter.name not in left_out
    ]
    every = _sum(parameters, shape)
    if all(parameter.trained for parameter, _ in parameters):
        return every
    return replace(every, trained=_sum([p for p in parameters if p[0].trained], shape))


def _sum(parameters: Sequence[tuple[Parameter, Operator]], shape: LocalShape) -> Elements:
    """Elements of parameters, each with the operator that it belongs to."""
    dense: Number = 0
    expert: Number = 0
    whole: Number = 0
    partial: Number = 0
    own: Number = 0
    packed = NOT_PACKED
    for parameter, op in parameters:
        elements = parameter_elements(parameter, shape, expert=op.place == "expert")
        if parameter.storage is not None:
            packed = _with_packed(packed, parameter, elements, shape, expert=op.place == "expert")
        elif parameter.of_each_replica:
            own = own + elements
            whole = whole + (elements if parameter.tp_dim is None else 0)
            partial = partial + (elements if is_partial(parameter, op) else 0)
        elif op.place == "expert":
            expert = expert + elements
        else:
            dense = dense + elements
            whole = whole + (elements if parameter.tp_dim is None else 0)
            partial = partial + (elements if is_partial(parameter, op) else 0)
    experts = sum(op.place == "expert" for _, op in parameters)
    return Elements(
        dense,
        expert,
        whole,
        partial=partial,
        dense_tensors=len(parameters) - experts,
        expert_tensors=experts,
        packed=packed,
        own=own,
    )


def _with_packed(
    packed: Packed, parameter: Parameter, elements: Number, shape: LocalShape, *, expert: bool
) -> Packed:
    """Add a frozen parameter with a type of its own."""
    size = packed_bytes(parameter, elements, shape, expert=expert)
    more = Packed(0, elements, 0, size) if expert else Packed(elements, 0, size, 0)
    return Packed(*(a + b for a, b in zip(packed, more, strict=True)))


def packed_bytes(parameter: Parameter, elements: Number, shape: LocalShape, *, expert: bool) -> Number:
    """Return the bytes of a rank's ``elements`` of a frozen parameter.

    The rows of a matrix are its outputs; each expert's matrix is stored by itself.
    """
    assert parameter.storage is not None
    *rows, _ = parameter.shape
    cut_rows = None if parameter.tp_dim == len(rows) else parameter.tp_dim
    outputs = replace(parameter, shape=tuple(rows), tp_dim=cut_rows)
    of_outputs = parameter_elements(outputs, shape, expert=expert)
    stack = replace(parameter, shape=tuple(rows[:-1]), tp_dim=None)
    matrices = parameter_elements(stack, shape, expert=expert)
    return np.ceil(stored_bytes(parameter.storage, elements, of_outputs, matrices))


def is_partial(parameter: Parameter, op: Operator) -> bool:
    """Return true if each tp rank applies a whole parameter to only a part of the work.

    So it is with norms of heads, adapters, and Mamba-2's filter of B and C.
    """
    return parameter.tp_dim is None and op.place == "tensor" and isinstance(op, Norm | LowRank | StateSpace)


def parameter_elements(parameter: Parameter, shape: LocalShape, *, expert: bool) -> Number:
    """Elements of one parameter on one rank; the vocabulary dim is padded first."""
    elements: Number = 1
    for dim, size in enumerate(parameter.shape):
        length: Number = shape.padded_vocab(size) if dim == parameter.vocab_dim else size
        if dim == parameter.tp_dim:
            cut = shape.vocabulary_cut if dim == parameter.vocab_dim else shape.tp
            length = np.ceil(length / (shape.etp if expert else cut))
        if dim == parameter.ep_dim:
            length = np.ceil(length / shape.ep)
        elements = elements * length
    return elements


def bytes_per_element(kind: StateKind, stack: Stack) -> int:
    """Return the stack's bytes per element of a state."""
    return {
        "parameter": stack.parameter_bytes,
        "gradient": stack.gradient_bytes,
        "optimizer": stack.optimizer_bytes,
    }[kind]


def state_kinds(stack: Stack) -> tuple[StateKind, ...]:
    """Return the kinds of state that parameters have: without backward passes no gradients, and no empty states."""
    if not stack.optimizer.forward_only:
        return STATE_KINDS
    return tuple(kind for kind in STATE_KINDS if bytes_per_element(kind, stack))


@dataclass(frozen=True, slots=True)
class ParameterClass:
    """A part of a block's parameters that has rows of its own in the state table; their names end with ``suffix``."""

    suffix: str
    expert: bool = False
    packed: bool = False
    own: bool = False

    def has(self, parameter: Parameter, op: Operator) -> bool:
        """Return whether a parameter belongs to this part."""
        kinds = op.place == "expert", parameter.storage is not None, parameter.of_each_replica
        return kinds == (self.expert, self.packed, self.own)


OWN = ParameterClass(".own", own=True)
PARAMETER_CLASSES = (
    ParameterClass(""),
    ParameterClass(".experts", expert=True),
    ParameterClass(".base", packed=True),
    ParameterClass(".experts.base", expert=True, packed=True),
    OWN,
)


@dataclass(frozen=True, slots=True)
class StateEntry:
    """A row of the state table: the states of ``repeat`` equal units of one stage on each rank of that stage.

    ``layout`` names the axes over which the elements are cut, in order of application. ``scales`` are the fp32 scales
    of a unit's narrow moments, one for each parameter. ``packed_bytes`` are those of one unit where its frozen or
    served parameters have a type of their own, and of caches; None: ``bytes_per_element`` each. ``part`` is the index
    of the part of the Program that has the axes.
    """

    name: str
    kind: StateKind
    stage: int
    repeat: int
    elements: int
    bytes_per_element: int
    layout: tuple[str, ...]
    layers: tuple[int, ...]
    scales: int = 0
    packed_bytes: int | None = field(default=None, repr=False)
    part: int = field(default=0, repr=False)

    @property
    def total_bytes(self) -> int:
        """Bytes on one rank."""
        if self.packed_bytes is not None:
            return self.repeat * self.packed_bytes
        return self.repeat * (self.elements * self.bytes_per_element + self.scales * SCALE_BYTES)
