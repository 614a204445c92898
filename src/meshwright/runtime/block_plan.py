"""A block on one rank as it is run: kernels, the Program's items of each pass, and how values flow."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from meshwright.model.flow import number_of_users, result_of, sources, users
from meshwright.model.graph import Block
from meshwright.model.operators import Operator
from meshwright.program.activations import Keeps
from meshwright.program.items import Compute, Item, Overlap, PassKind
from meshwright.runtime.kernels.kernel import Kernel


@dataclass(frozen=True)
class BlockPlan:
    """A block on one rank: its operators' kernels, the Program's items of each pass, and what F keeps."""

    block: Block
    kernels: Mapping[str, Kernel]
    items: Mapping[PassKind, Sequence[Item]]
    keeps: Mapping[str, Keeps]

    @property
    def operators(self) -> Sequence[Operator]:
        """The chain."""
        return self.block.operators

    @cached_property
    def named(self) -> Mapping[str, Operator]:
        """Operators by name."""
        return {op.name: op for op in self.operators}

    @cached_property
    def sources(self) -> Mapping[str, tuple[str, ...]]:
        """Whose results each operator reads."""
        return sources(self.operators)

    @cached_property
    def users(self) -> Mapping[str, tuple[Operator, ...]]:
        """Who works on the result of each operator, through the edge of the tensor region."""
        return users(self.operators)

    @cached_property
    def result(self) -> str:
        """The operator whose result is the block's."""
        return result_of(self.operators)

    @cached_property
    def readers(self) -> Mapping[str, int]:
        """How many read each result."""
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
        """Names of the edges at which nothing happens."""
        return frozenset(op.name for op, items in self.forward if not items)

    def kernel(self, op: Operator) -> Kernel:
        """The kernel of an operator."""
        return self.kernels[op.name]

    def waits_for_input(self, name: str) -> bool:
        """Whether an operator dropped its input, and no row brings it back that runs from before it through it."""
        operators = self.operators
        before = operators[max(0, operators.index(self.named[name]) - 1)].name
        return not self.keeps[name].inputs and (self.keeps[name].inner or self.keeps[before].inner)

    def owner(self, item: Item) -> str:
        """The operator that an item belongs to."""
        if isinstance(item, Compute):
            return item.operator.name
        if isinstance(item, Overlap):
            return item.compute[0].operator.name
        return item.what if item.what in self.kernels else item.what.split()[0]
