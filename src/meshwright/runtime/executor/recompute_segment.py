"""Recompute consecutive operators during a backward pass.

A segment begins with what its first operator saved (for attention, before its exchanges) or, after an edge, with this
rank's part of the input, and continues from operator to operator. Its results go to the operators that dropped their
input.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from meshwright.model.operators.data_flow import ENTRY, published
from meshwright.model.operators.operator_types import EnterTensor, Operator, Residual
from meshwright.model.transforms.lora_adapters import SUFFIX
from meshwright.program.pass_items import Collective, Compute, Item
from meshwright.runtime.executor.block_plan import BlockPlan
from meshwright.runtime.executor.intermediate_values import Results, Value, of_all
from meshwright.runtime.executor.operator_call import OperatorCall
from meshwright.runtime.kernels.attention.softmax_attention import AttentionKernel
from meshwright.runtime.kernels.linear_attention.linear_attention import LinearAttentionKernel


@dataclass
class RecomputeSegment:
    """The recomputed ``results``, the current operator (``doing``) and its ``value`` so far.

    ``run`` runs one item of an operator on a value. ``shared`` are the values of the stage: those that the block reads
    and does not replace are as they were.
    """

    plan: BlockPlan
    visits: Mapping[str, OperatorCall]
    run: Callable[[Operator, Item, Value], Value]
    shared: Mapping[str, Value]
    results: Results = field(init=False)
    doing: str = ""
    value: Value = None

    def __post_init__(self) -> None:
        self.results = Results(self.plan.readers)
        replaced = {op.publishes for op in self.plan.operators}
        for name in self.plan.shared_inputs:
            if name not in replaced:
                self.results.put(name, self.shared[name])

    def step(self, item: Item) -> None:
        """Recompute one item."""
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
        """Finish the current operator: restore its result as the input of the operators that dropped it."""
        if not self.doing:
            return
        self.results.put(self.doing, self.value)
        for user in self.plan.users[self.doing]:
            if self.plan.waits_for_input(user.name):
                of = self.plan.inputs[user.name]
                parts = [self.results.held.get(name) for name in of] if self.doing in of else [self.value]
                if all(part is not None for part in parts):
                    self.plan.kernel(user).restore(of_all(parts), self.visits[user.name])

    def _inputs(self, op: Operator) -> Value:
        """Return an operator's input from the segment; None if it was not recomputed.

        If the operator reads several results, the first one decides; an edge of the tensor region needs all of them.
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

    def _kept_input(self, name: str) -> Value:
        """Return the saved input of an operator, or of its adapter where its own weights are frozen."""
        kept = self.visits[name].kept
        return kept["input"] if "input" in kept else self.visits[name + SUFFIX].kept["input"]

    def _in_stream(self, name: str) -> bool:
        op = self.plan.named[name]
        return isinstance(op, Residual) or op.begins_stream

    def _from_kept(self, op: Operator, item: Item) -> Value:
        """Return the saved value that a segment begins with; after an edge, this rank's part of the input."""
        kernel = self.plan.kernel(op)
        if isinstance(kernel, AttentionKernel | LinearAttentionKernel) and not isinstance(item, Compute):
            return kernel.kept_value(self.visits[op.name])
        if isinstance(item, Collective):
            behind = [name for name, of in self.plan.sources.items() if op.name in of]
            return of_all([self._kept_input(name) for name in behind if name not in self.plan.adapters])
        visit, (source, *_) = self.visits[op.name], self.plan.sources[op.name]
        if source == ENTRY or published(source) or self._in_stream(source):  # a residual also reads it
            self.results.put(source, visit.kept["input"])
            self.results.take(source)
        return kernel.again(visit)
