"""What every kernel offers: the four things that the Program says of an operator.

=====================  ============================================================================================
Program's item         call
=====================  ============================================================================================
Compute(op, F or R)    ``forward(x, visit)`` → y; keeps what ``visit.keep`` allows; ``again`` begins a row of R
Compute(op, I)         ``input_gradient(g, visit)`` → gradient of x; small gradients (biases, norms) are summed here
Compute(op, W)         ``weight_gradient(visit)``: gradients of matrices and tables, from what I left
Collective             ``exchange(item, x, visit)`` → steps of the exchange and, in the end, what became of x
=====================  ============================================================================================

No autograd graph spans them: what lives between passes is what ``visit.kept`` holds, to the byte. Values are
(sequence, batch, width); with sequence parallelism the sequence is cut over tp outside of the tensor region, and lies
first so that its pieces are contiguous.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import torch

from meshwright.model.architecture import Architecture
from meshwright.model.blocks import EMBEDDING_TABLE
from meshwright.model.numerics import Numerics
from meshwright.model.operators import Operator, Parameter
from meshwright.plan.context import Context
from meshwright.program.items import Collective
from meshwright.program.shape import ACTIVATION_BYTES, LocalShape
from meshwright.runtime.communicator import Communicator, Work
from meshwright.runtime.kernels.tables import Tables
from meshwright.runtime.precision import Precision
from meshwright.runtime.rows import positions_of
from meshwright.runtime.tally import Tally
from meshwright.runtime.unit_layout import vocabulary_part
from meshwright.runtime.visit import Visit

Exchange = Generator[Work, None, Any]
Value = Any
"""A tensor; between a fused projection and attention it may be queries, keys and values apart."""


@dataclass(frozen=True)
class Setting:
    """What kernels of one layer on one rank are made for.

    ``layer`` is the number of the decoder layer, None outside. ``buffers`` are what is stored with the weights and gets
    no gradient, by full name; ``tally`` is what the routed layers of the rank find in a step.
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
    tally: Tally = field(default_factory=Tally)

    def named(self, parameter: Parameter, unit: str = "") -> str:
        """A parameter's full name; a tied head works with the embedding's table."""
        owner = "embed" if parameter.name == EMBEDDING_TABLE else unit or self.unit_name
        return f"{owner}.{parameter.name}"

    def names_of(self, op: Operator, dims: tuple[int, ...] = (1, 2)) -> tuple[str, ...]:
        """Full names of the parameters of so many dims that an operator works with; it borrows the head's."""
        borrowed = [self.named(p, "head") for p in op.borrows if len(p.shape) in dims]
        return (*(self.named(p) for p in op.parameters if len(p.shape) in dims), *borrowed)

    @property
    def decoder_layer(self) -> int:
        """The number of the layer, of a kernel that is in one."""
        assert self.layer is not None
        return self.layer

    @cached_property
    def tp_rank(self) -> int:
        """This rank's place among those that cut the layer."""
        return self.communicator.place_in(("tp",))

    @property
    def context(self) -> Context:
        """How the ranks of cp bring queries to keys."""
        return self.communicator.program.mode.context

    @cached_property
    def cp_rank(self) -> int:
        """This rank's place among those that have parts of its sequences."""
        return self.communicator.program.grid.group_of(self.communicator.rank, ("cp",)).index(
            self.communicator.rank
        )

    @property
    def heads_place(self) -> int:
        """This rank's place among those with which it exchanges heads."""
        return self.cp_rank % int(self.shape.ulysses)

    @property
    def ring_place(self) -> int:
        """This rank's place among those that still have parts of a sequence while they attend."""
        return self.cp_rank // int(self.shape.ulysses)

    @property
    def first_head(self) -> int:
        """The first of the query heads with which this rank attends."""
        of_rank = self.architecture.heads // self.tp
        return self.tp_rank * of_rank + self.heads_place * of_rank // int(self.shape.ulysses)

    @cached_property
    def positions(self) -> torch.Tensor:
        """The positions of the sequence that this rank has in the tensor region."""
        held = positions_of(self.communicator.program, self.communicator.rank)
        return torch.tensor(held, device=self.communicator.device)

    @property
    def tp(self) -> int:
        """How many ranks cut the layer."""
        return int(self.shape.tp)

    @property
    def vocabulary_parts(self) -> int:
        """How many ranks cut the tables of the vocabulary: those of tp, or with them those of the pipeline."""
        return int(self.shape.vocabulary_cut)

    @cached_property
    def vocabulary_part(self) -> int:
        """Which of their parts this rank has: pipeline ranks have stretches of rows, tp cuts each of these."""
        return vocabulary_part(self.shape, self.communicator.pipeline_rank, self.tp_rank)

    @property
    def counts_whole(self) -> bool:
        """Whether this rank sums up gradients of what tp does not cut in the tensor region (row biases, positions).

        All tp ranks see all tokens there. With sequence parallelism their gradients are summed over tp: one rank
        counts.
        """
        return not self.sequence_parallel or self.tp_rank == 0


class Kernel(Protocol):
    """One operator of one layer on one rank. It holds no tensors of its own."""

    def forward(self, x: Value, visit: Visit) -> Value:
        """The operator itself."""

    def again(self, visit: Visit) -> Value:
        """The operator once more, on the input that it kept."""

    def restore(self, x: Value, visit: Visit) -> None:
        """Take the input that was not kept and has been computed again."""

    def input_gradient(self, g: Value, visit: Visit) -> Value:
        """The gradient of its input; afterwards only what W needs is kept."""

    def weight_gradient(self, visit: Visit) -> None:
        """Add the gradients of its parameters; afterwards nothing is kept."""

    def exchange(self, item: Collective, x: Value, visit: Visit) -> Exchange:
        """Run a collective of the operator on ``x``."""


def tensor_exchange(communicator: Communicator, item: Collective, x: torch.Tensor) -> Exchange:
    """All-gather, reduce-scatter or all-reduce of a value over tp, along the sequence."""
    members = len(communicator.ranks_of(item.axes))
    x = x.contiguous()
    if item.kind == "all-reduce":
        yield communicator.start(item, x, ACTIVATION_BYTES)
        return x
    tokens = len(x) * members if item.kind == "all-gather" else len(x) // members
    out = x.new_empty((tokens, *x.shape[1:]))
    yield communicator.start(item, x, ACTIVATION_BYTES, out=out)
    return out
