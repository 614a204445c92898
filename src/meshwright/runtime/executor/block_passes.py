"""Run one block on one micro-batch: pass the Program's items, in order, to the kernels.

The contents of a pass are not written here: F, I and W are the lists of items that the predictor prices. This module
walks them and gives each operator its inputs: results in the forward pass, summed gradients in the backward pass
(``model/operators/data_flow.py``). Recomputation during the backward pass is a ``RecomputeSegment``.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from meshwright.model.operators.data_flow import ENTRY
from meshwright.model.operators.operator_types import EnterTensor, Linear, LowRank, Operator
from meshwright.program.pass_items import Collective, Compute, Item, Overlap
from meshwright.runtime.comm.communicator import Work
from meshwright.runtime.executor.block_plan import BlockPlan
from meshwright.runtime.executor.intermediate_values import Gradients, Results, StageValues, Value, of_all
from meshwright.runtime.executor.operator_call import EVERYTHING, OperatorCall
from meshwright.runtime.executor.recompute_segment import RecomputeSegment
from meshwright.runtime.kernels.attention.softmax_attention import AttentionKernel
from meshwright.runtime.kernels.kernel import Exchange


@dataclass
class PendingExchange:
    """An exchange in progress: ``finish`` ends it and returns its result. ``begun`` counts its operations so far."""

    steps: Exchange
    work: Work | None = None
    result: Value = None
    begun: int = 0

    def begin(self) -> "PendingExchange":
        """Start the first operation."""
        self._advance()
        return self

    def finish(self) -> Value:
        """Wait for each operation and start the next one until all are done; return the result."""
        while self.work is not None:
            self.go_on()
        return self.result

    def go_on(self) -> None:
        """Wait for the current operation and start the next one."""
        assert self.work is not None
        self.work.wait()
        self._advance()

    def _advance(self) -> None:
        try:
            self.work = next(self.steps)
            self.begun += 1
        except StopIteration as end:
            self.work, self.result = None, end.value


@dataclass
class BlockRun:
    """A block on one micro-batch; ``visits``, the operator calls, live from F until W.

    ``gathered`` holds the inputs of tensor-parallel edges as they were before their all-gather; ``loss`` is the block's
    own loss, in addition to a result. ``shared`` are the stage's values, which blocks read and publish. ``gradients``
    and ``left``, the operators whose backward pass is still to come, belong to I, ``row`` to the recomputation in it.
    """

    plan: BlockPlan
    visits: Mapping[str, OperatorCall]
    shared: StageValues = field(default_factory=StageValues)
    gathered: Results = field(init=False)
    loss: Value = None
    gradients: Gradients = field(default_factory=Gradients)
    left: list[Operator] = field(default_factory=list)
    row: RecomputeSegment | None = None

    def __post_init__(self) -> None:
        self.gathered = Results(self.plan.readers)
        for visit in self.visits.values():
            visit.others = self.visits

    def forward(self, x: Value) -> Value:
        """F: return the block's output, or the loss."""
        for name, visit in self.visits.items():
            visit.keep = self.plan.keeps[name]
        results = Results(self.plan.readers)
        results.put(ENTRY, x)
        for name in self.plan.shared_inputs:
            results.put(name, self.shared.values[name])
        for op, items in self.plan.forward:
            value = of_all([results.take(name) for name in self.plan.sources[op.name]])
            for item in items:
                value = self._forward(op, item, value)
            results.put(op.name, value)
            if op.publishes:
                self.shared.values[op.publishes] = value
        if self.plan.block.publishes:
            return x
        if self.plan.block.predicts_further:
            self.loss = results.take(self.plan.operators[-1].name)
        return results.take(self.plan.result)

    def input_gradient(self, g: Value) -> Value:
        """I: return the gradient of the block's input, recomputing operators on the way."""
        self.left = list(self.plan.operators)
        self.gradients.add(self.left[-1].name, None)
        for op in self.plan.operators:
            if op.publishes:
                self.gradients.add(op.name, self.shared.gradients.pop(op.publishes, None))
        if not self.plan.block.publishes:
            self.gradients.add(self.plan.result, g)
        at, value = "", None
        for item in self.plan.items["I"]:
            if _is_again(item):
                self._again(item)
                continue
            self._end_row()
            owner = self.plan.owner(item)
            if isinstance(item, Compute) and item.phase == "W":
                self.plan.kernels[owner].weight_gradient(self.visits[owner])
                continue
            if owner != at:
                self._pass_on(at, value)
                at, value = owner, self._gradient_of(owner)
            value = self._gradient(item, value)
        self._pass_on(at, value)
        for op in reversed(self.left):
            self._spread(op.name, self.gradients.take(op.name))
        for name in self.plan.shared_inputs:
            self.shared.add_gradient(name, self.gradients.take(name))
        return g if self.plan.block.publishes else self.gradients.take(ENTRY)

    def weight_gradient(self) -> None:
        """W: compute the gradients of matrices and tables."""
        for item in self.plan.items["W"]:
            assert isinstance(item, Compute), item
            self.plan.kernel(item.operator).weight_gradient(self.visits[item.operator.name])

    # -- forward ------------------------------------------------------------------------------------------------

    def _forward(self, op: Operator, item: Item, value: Value) -> Value:
        if isinstance(item, Overlap):
            return self._attention(op).forward(value, self.visits[op.name], item.overlapped)
        if isinstance(item, Collective):
            if item.kind == "all-gather" and isinstance(op, EnterTensor):
                self.gathered.put(op.name, value)
            return self._exchange(item, value).finish()
        return self._compute(op, value)

    def _compute(self, op: Operator, value: Value) -> Value:
        visit, source = self.visits[op.name], self.plan.inputs[op.name][0]
        if isinstance(op, Linear | LowRank) and source in self.gathered:
            visit.source = self.gathered.take(source)
        y = self.plan.kernel(op).forward(value, visit)
        visit.source = None
        return y

    def _exchange(self, item: Collective, value: Value) -> PendingExchange:
        owner = self.plan.owner(item)
        return PendingExchange(self.plan.kernels[owner].exchange(item, value, self.visits[owner])).begin()

    def _attention(self, op: Operator) -> AttentionKernel:
        """Return the kernel of attention, the only one that computes while its own exchanges run."""
        kernel = self.plan.kernel(op)
        assert isinstance(kernel, AttentionKernel), f"nothing runs beside {op.name}"
        return kernel

    # -- recomputation ------------------------------------------------------------------------------------------

    def _again(self, item: Item) -> None:
        """Run one item of a recomputed segment."""
        if self.row is None:
            self.row = RecomputeSegment(self.plan, self.visits, self._forward, self.shared.values)
            for visit in self.visits.values():
                visit.keep = EVERYTHING
        self.row.step(item)

    def _end_row(self) -> None:
        if self.row is not None:
            self.row.hand_on()
            self.row, self.gathered = None, Results(self.plan.readers)

    # -- backward -----------------------------------------------------------------------------------------------

    def _gradient_of(self, name: str) -> Value:
        """Return the gradient of an operator's result after all later operators have passed theirs on."""
        while self.left[-1].name != name:
            behind = self.left.pop().name
            self._spread(behind, self.gradients.take(behind))
        return self.gradients.take(name)

    def _pass_on(self, name: str, gradient: Value) -> None:
        """Finish an operator: add its gradients to those of the results it read."""
        if name:
            self.left.pop()
            self._spread(name, gradient)

    def _spread(self, name: str, gradient: Value) -> None:
        of = self.plan.sources[name]
        for source, part in zip(of, gradient if len(of) > 1 else (gradient,), strict=True):
            self.gradients.add(source, part)

    def _gradient(self, item: Item, g: Value) -> Value:
        if isinstance(item, Collective):
            return self._exchange(item, g).finish()
        if isinstance(item, Compute):
            return self.plan.kernel(item.operator).input_gradient(g, self.visits[item.operator.name])
        if item.overlapped[0].kind == "ring":
            op = item.compute[0].operator
            return self._attention(op).input_gradient(g, self.visits[op.name], item.overlapped)
        overlapped = [self._exchange(collective, None) for collective in item.overlapped]
        for compute in item.compute:
            g = self._gradient(compute, g)
        for exchange in overlapped:
            exchange.finish()
        return g


def _is_again(item: Item) -> bool:
    if isinstance(item, Collective):
        return item.phase == "R"
    computes: Iterable[Compute] = (item,) if isinstance(item, Compute) else item.compute
    return all(compute.phase == "R" for compute in computes)


def live_bytes(visits: Iterable[OperatorCall]) -> int:
    """Return the bytes of the distinct storages that operator calls keep."""
    storages = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for visit in visits
        for tensor in visit.kept.values()
    }
    return sum(storages.values())
