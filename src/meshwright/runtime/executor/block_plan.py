"""Execution plan of a block on one rank: kernels, the Program's items of each pass, and the flow of values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from meshwright.model.graph import Block
from meshwright.model.operators.data_flow import (
    number_of_users,
    published,
    result_of,
    sources,
    users,
)
from meshwright.model.operators.operator_types import LowRank, Operator
from meshwright.program.activation_bytes import SavedTensors
from meshwright.program.pass_items import Compute, Item, Overlap, PassKind
from meshwright.runtime.kernels.kernel import Kernel


@dataclass(frozen=True)
class BlockPlan:
    """A block on one rank: its operators' kernels, the Program's items of each pass, and the tensors that F saves."""

    block: Block
    kernels: Mapping[str, Kernel]
    items: Mapping[PassKind, Sequence[Item]]
    keeps: Mapping[str, SavedTensors]

    @property
    def operators(self) -> Sequence[Operator]:
        """The block's operators, in order."""
        return self.block.operators

    @cached_property
    def named(self) -> Mapping[str, Operator]:
        """Operators by name."""
        return {op.name: op for op in self.operators}

    @cached_property
    def sources(self) -> Mapping[str, tuple[str, ...]]:
        """The operators whose results each operator reads."""
        return sources(self.operators)

    @cached_property
    def inputs(self) -> Mapping[str, tuple[str, ...]]:
        """The operators whose results are the inputs that each operator may save.

        An adapter does not save the result that it adds to.
        """
        return {name: of[name in self.adapters :] for name, of in self.sources.items()}

    @cached_property
    def adapters(self) -> frozenset[str]:
        """The names of adapters."""
        return frozenset(op.name for op in self.operators if isinstance(op, LowRank))

    @cached_property
    def users(self) -> Mapping[str, tuple[Operator, ...]]:
        """The operators that use each operator's result, seen through the edges of the tensor-parallel region."""
        return users(self.operators)

    @cached_property
    def result(self) -> str:
        """The operator whose result is the block's."""
        return result_of(self.operators)

    @cached_property
    def shared_inputs(self) -> tuple[str, ...]:
        """The values of the stage that the block reads."""
        return tuple(dict.fromkeys(name for of in self.sources.values() for name in of if published(name)))

    @cached_property
    def readers(self) -> Mapping[str, int]:
        """The number of readers of each result."""
        return number_of_users(self.operators)

    @cached_property
    def forward(self) -> tuple[tuple[Operator, tuple[Item, ...]], ...]:
        """The items of F, operator by operator; an edge may have none."""
        found: dict[str, list[Item]] = {op.name: [] for op in self.operators}
        for item in self.items["F"]:
            found[self.owner(item)].append(item)
        return tuple((op, tuple(found[op.name])) for op in self.operators)

    @cached_property
    def passed_through(self) -> frozenset[str]:
        """Names of the edges that have no items."""
        return frozenset(op.name for op, items in self.forward if not items)

    def kernel(self, op: Operator) -> Kernel:
        """Return the kernel of an operator."""
        return self.kernels[op.name]

    def waits_for_input(self, name: str) -> bool:
        """Return whether an operator dropped its input and must be given it again by ``restore``.

        Not needed if one recomputed segment runs from the previous operator through this one.
        """
        operators = self.operators
        before = operators[max(0, operators.index(self.named[name]) - 1)].name
        return not self.keeps[name].inputs and (self.keeps[name].inner or self.keeps[before].inner)

    def owner(self, item: Item) -> str:
        """Return the name of the operator that an item belongs to."""
        if isinstance(item, Compute):
            return item.operator.name
        if isinstance(item, Overlap):
            return item.compute[0].operator.name
        return item.what if item.what in self.kernels else item.what.split()[0]
