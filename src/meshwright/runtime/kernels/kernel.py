"""The interface of every kernel: one call for each of the four kinds of Program items.

=====================  ============================================================================================
Program's item         call
=====================  ============================================================================================
Compute(op, F or R)    ``forward(x, visit)`` → y; saves what ``visit.keep`` allows; ``again`` begins a segment of R
Compute(op, I)         ``input_gradient(g, visit)`` → gradient of x; small gradients (biases, norms) are summed here
Compute(op, W)         ``weight_gradient(visit)``: gradients of matrices and tables, from what I left
Collective             ``exchange(item, x, visit)`` → steps of the exchange and, in the end, the new value of x
=====================  ============================================================================================

There is no autograd graph across kernels: what lives between passes is what ``visit.kept`` holds, to the byte. Values
are (sequence, batch, width); with sequence parallelism the sequence is cut over tp outside the tensor-parallel region,
and is the first dim so that its pieces are contiguous.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import torch

from meshwright.model.architecture import Architecture
from meshwright.model.numerics import Numerics
from meshwright.model.operators.blocks import EMBEDDING_TABLE
from meshwright.model.operators.operator_types import Operator, Parameter
from meshwright.plans.context_parallel import Context
from meshwright.program.local_shape import ACTIVATION_BYTES, LocalShape
from meshwright.program.pass_items import Collective
from meshwright.program.program_parts import Part
from meshwright.program.rank_units.unit_layout import vocabulary_part
from meshwright.runtime.batch.batch_sharding import rank_positions
from meshwright.runtime.comm.communicator import Communicator, Work
from meshwright.runtime.executor.operator_call import OperatorCall
from meshwright.runtime.executor.router_statistics import RouterStatistics
from meshwright.runtime.kernels.constant_tables import Tables
from meshwright.runtime.precision import Precision

Exchange = Generator[Work, None, Any]
Value = Any
"""A tensor; between a fused projection and attention it may be a tuple of queries, keys and values."""


@dataclass(frozen=True)
class Setting:
    """Everything that the kernels of one layer on one rank depend on.

    ``layer`` is the number of the decoder layer, None outside. ``buffers`` are tensors stored with the weights that
    get no gradient, by full name; ``tally`` collects the statistics of the rank's routed layers in a step.
    ``seed`` is the run's, of random choices.
    """

    architecture: Architecture
    numerics: Numerics
    shape: LocalShape
    communicator: Communicator
    precision: Precision
    sequence_parallel: bool
    tables: Tables
    unit_name: str
    layer: int | None
    buffers: Mapping[str, torch.Tensor] = field(default_factory=dict)
    tally: RouterStatistics = field(default_factory=RouterStatistics)
    seed: int = 0

    def named(self, parameter: Parameter, unit: str = "") -> str:
        """Return a parameter's full name; a tied head uses the embedding's table."""
        owner = "embed" if parameter.name == EMBEDDING_TABLE else unit or self.unit_name
        return f"{owner}.{parameter.name}"

    def names_of(self, op: Operator, dims: tuple[int, ...] = (1, 2)) -> tuple[str, ...]:
        """Return full names of an operator's parameters with so many dims, and of those it borrows from the head."""
        borrowed = [self.named(p, "head") for p in op.borrows if len(p.shape) in dims]
        return (*(self.named(p) for p in op.parameters if len(p.shape) in dims), *borrowed)

    @property
    def decoder_layer(self) -> int:
        """The layer's number; the kernel must be in a decoder layer."""
        assert self.layer is not None
        return self.layer

    @cached_property
    def tp_rank(self) -> int:
        """Index of this rank among the tp ranks."""
        return self.communicator.place_in(("tp",))

    @property
    def part(self) -> Part:
        """The part of the Program that the layer belongs to."""
        return self.communicator.part

    @property
    def context(self) -> Context:
        """The form of context parallelism."""
        return self.part.mode.context

    @cached_property
    def cp_rank(self) -> int:
        """Index of this rank among the cp ranks that share its sequences."""
        return self.part.grid.group_of(self.communicator.rank, ("cp",)).index(self.communicator.rank)

    @property
    def heads_place(self) -> int:
        """Index of this rank among the ranks with which it exchanges heads (Ulysses)."""
        return self.cp_rank % int(self.shape.ulysses)

    @property
    def ring_place(self) -> int:
        """Index of this rank among the ranks that hold parts of a sequence during attention."""
        return self.cp_rank // int(self.shape.ulysses)

    @property
    def first_head(self) -> int:
        """The first of the query heads that this rank attends with."""
        of_rank = self.architecture.heads // self.tp
        return self.tp_rank * of_rank + self.heads_place * of_rank // int(self.shape.ulysses)

    @cached_property
    def positions(self) -> torch.Tensor:
        """The sequence positions that this rank holds in the tensor-parallel region."""
        held = rank_positions(self.part, self.communicator.rank)
        return torch.tensor(held, device=self.communicator.device)

    @property
    def tp(self) -> int:
        """The tensor-parallel degree."""
        return int(self.shape.tp)

    @property
    def vocabulary_parts(self) -> int:
        """The number of ranks that the vocabulary's tables are cut over: tp, or tp times the pipeline."""
        return int(self.shape.vocabulary_cut)

    @cached_property
    def vocabulary_part(self) -> int:
        """The index of this rank's part: rows are cut over pipeline ranks first, then over tp."""
        return vocabulary_part(self.shape, self.communicator.pipeline_rank, self.tp_rank)

    @property
    def counts_whole(self) -> bool:
        """True if this rank adds gradients of parameters that tp does not cut.

        These are biases of row-parallel matrices, and positions. Inside the tensor-parallel region all tp ranks see
        all tokens. With sequence parallelism these gradients are summed over tp, so only one rank may add them.
        """
        return not self.sequence_parallel or self.tp_rank == 0


class Kernel(Protocol):
    """One operator of one layer on one rank. It holds no tensors of its own."""

    def forward(self, x: Value, visit: OperatorCall) -> Value:
        """Compute the operator."""

    def again(self, visit: OperatorCall) -> Value:
        """Recompute the operator from the input that it saved."""

    def restore(self, x: Value, visit: OperatorCall) -> None:
        """Save a recomputed input that was not saved before."""

    def input_gradient(self, g: Value, visit: OperatorCall) -> Value:
        """Return the gradient of the input; afterwards only what W needs is saved."""

    def weight_gradient(self, visit: OperatorCall) -> None:
        """Add the gradients of the parameters; afterwards nothing is saved."""

    def exchange(self, item: Collective, x: Value, visit: OperatorCall) -> Exchange:
        """Run a collective of the operator on ``x``."""


def tensor_exchange(communicator: Communicator, item: Collective, x: torch.Tensor) -> Exchange:
    """All-gather, reduce-scatter or all-reduce a value over tp, along the sequence."""
    members = len(communicator.ranks_of(item.axes))
    x = x.contiguous()
    if item.kind == "all-reduce":
        yield communicator.start(item, x, ACTIVATION_BYTES)
        return x
    tokens = len(x) * members if item.kind == "all-gather" else len(x) // members
    out = x.new_empty((tokens, *x.shape[1:]))
    yield communicator.start(item, x, ACTIVATION_BYTES, out=out)
    return out
