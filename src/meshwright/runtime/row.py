"""Operators that run again one after the other, in the midst of a backward pass.

A row begins with what its first operator has kept (attention: before its exchanges, too), or behind an edge with the
parts of its input that this rank has, and goes on from operator to operator. What it makes is given to those that
dropped their input.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from meshwright.model.flow import ENTRY
from meshwright.model.operators import EnterTensor, Operator, Residual
from meshwright.program.items import Collective, Compute, Item
from meshwright.runtime.block_plan import BlockPlan
from meshwright.runtime.kernels.attention import AttentionKernel
from meshwright.runtime.kernels.linear_attention import LinearAttentionKernel
from meshwright.runtime.values import Results, Value, of_all
from meshwright.runtime.visit import Visit


@dataclass
class Row:
    """``results`` of what has run again, the operator at work (``doing``) and its ``value`` so far.

    ``run`` runs one item of an operator on a value.
    """

    plan: BlockPlan
    visits: Mapping[str, Visit]
    run: Callable[[Operator, Item, Value], Value]
    results: Results = field(init=False)
    doing: str = ""
    value: Value = None

    def __post_init__(self) -> None:
        self.results = Results(self.plan.readers)

    def step(self, item: Item) -> None:
        """Run one item again."""
        op = self.plan.named[self.plan.owner(item)]
        begins = self.doing != op.name
        if begins:
            self.hand_on()
            self.doing, self.value = op.name, self._inputs(op)
        if begins and self.value is None:
            self.value = self._from_kept(op, item)
            if isinstance(item, Compute):
                return
        self.value = self.run(op, item, self.value)

    def hand_on(self) -> None:
        """The operator at work is done: its result goes to those that dropped their input."""
        if not self.doing:
            return
        self.results.put(self.doing, self.value)
        for user in self.plan.users[self.doing]:
            if self.plan.waits_for_input(user.name):
                of = self.plan.sources[user.name]
                parts = [self.results.held.get(name) for name in of] if self.doing in of else [self.value]
                if all(part is not None for part in parts):
                    self.plan.kernel(user).restore(of_all(parts), self.visits[user.name])

    def _inputs(self, op: Operator) -> Value:
        """What an operator reads of the row, None where that is not in it.

        Of several results the first one decides, but those that pass an edge pass it together.
        """
        found = [self._made(name) for name in self.plan.sources[op.name]]
        deciding = found if isinstance(op, EnterTensor) else found[:1]
        return None if any(part is None for part in deciding) else of_all(found)

    def _made(self, name: str) -> Value:
        if name not in self.results and name in self.plan.passed_through:
            passed = self._inputs(self.plan.named[name])
            if passed is not None:
                self.results.put(name, passed)
        return self.results.take(name) if name in self.results else None

    def _in_stream(self, name: str) -> bool:
        op = self.plan.named[name]
        return isinstance(op, Residual) or op.begins_stream

    def _from_kept(self, op: Operator, item: Item) -> Value:
        """Begin with what an operator kept; behind an edge, with the part of its input that this rank holds."""
        kernel = self.plan.kernel(op)
        if isinstance(kernel, AttentionKernel | LinearAttentionKernel) and not isinstance(item, Compute):
            return kernel.kept_value(self.visits[op.name])
        if isinstance(item, Collective):
            behind = [name for name, of in self.plan.sources.items() if op.name in of]
            return of_all([self.visits[name].kept["input"] for name in behind])
        visit, (source, *_) = self.visits[op.name], self.plan.sources[op.name]
        if source == ENTRY or self._in_stream(source):  # a residual reads it, too
            self.results.put(source, visit.kept["input"])
            self.results.take(source)
        return kernel.again(visit)
