"""One block on one micro-batch: the Program's items, one after the other, handed to the kernels.

What a pass does is not written here: F, I and W are the lists of items that the predictor prices. This walks them.
The residual stream forks at the first operator of every branch and comes together at its Residual; backwards the
gradient of the stream waits beside the branch's.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch

from meshwright.model.graph import Block
from meshwright.model.operators import EnterTensor, LeaveTensor, Linear, Operator, Residual
from meshwright.program.activations import Keeps
from meshwright.program.items import Collective, Compute, Item, Overlap, PassKind
from meshwright.runtime.communicator import Work
from meshwright.runtime.kernels.kernel import Exchange, Kernel, Value
from meshwright.runtime.visit import EVERYTHING, Visit

NOTHING = Keeps(inputs=False, inner=False)


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
    def forks(self) -> frozenset[str]:
        """Names of the operators that begin a branch off the stream."""
        first, found, pending = True, set(), ""
        for op in self.operators:
            if first:
                pending, first = op.name, False
            if isinstance(op, Residual):
                found.add(pending)
                first = True
        return frozenset(found)

    def waits_for_input(self, name: str) -> bool:
        """Whether an operator dropped its input but is not run again itself, which would bring it back."""
        return self.keeps[name].inner and not self.keeps[name].inputs

    def owner(self, item: Collective) -> str:
        """The operator that a collective belongs to."""
        return item.what if item.what in self.kernels else item.what.split()[0]

    def user(self, name: str) -> str | None:
        """The operator that works on the result of ``name``; None where that leaves the tensor region."""
        names = [op.name for op in self.operators]
        after = self.operators[names.index(name) + 1 :]
        following = next((op for op in after if not isinstance(op, EnterTensor)), None)
        return None if following is None or isinstance(following, LeaveTensor) else following.name


@dataclass
class Exchanging:
    """An exchange under way: ``finish`` ends it and gives its result. ``begun`` counts its operations so far."""

    steps: Exchange
    work: Work | None = None
    result: Value = None
    begun: int = 0

    def begin(self) -> "Exchanging":
        """Start its first operation."""
        self._advance()
        return self

    def finish(self) -> Value:
        """Wait for each operation, begin the next one, until all are done."""
        while self.work is not None:
            self.go_on()
        return self.result

    def go_on(self) -> None:
        """Wait for the operation under way and begin the next one."""
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
    """A block at work on one micro-batch; ``visits`` live from F until W.

    ``stream`` is the residual stream beside a branch, ``waiting`` its gradient; ``source`` what was gathered last,
    before it was; ``row`` the value in a row of operators that run again.
    """

    plan: BlockPlan
    visits: Mapping[str, Visit]
    stream: torch.Tensor | None = None
    waiting: torch.Tensor | None = None
    source: torch.Tensor | None = None
    row: Value = None
    beside: list[tuple[str, Exchanging]] = field(default_factory=list)

    def forward(self, x: Value) -> Value:
        """F: the block's output, or the loss."""
        for name, visit in self.visits.items():
            visit.keep = self.plan.keeps[name]
        value = x
        for item in self.plan.items["F"]:
            value = self._forward(item, value)
        self.stream = self.source = None
        return value

    def input_gradient(self, g: Value) -> Value:
        """I: the gradient of the block's input; what is recomputed runs on the way."""
        for item in self.plan.items["I"]:
            if _is_again(item):
                self._again(item)
            else:
                self.row = None
                g = self._gradient(item, g)
        self.stream = self.source = None
        return g

    def weight_gradient(self) -> None:
        """W: gradients of matrices and tables."""
        for item in self.plan.items["W"]:
            assert isinstance(item, Compute), item
            self._kernel(item.operator).weight_gradient(self.visits[item.operator.name])

    # -- forward ------------------------------------------------------------------------------------------------

    def _forward(self, item: Item, value: Value) -> Value:
        if isinstance(item, Overlap):
            raise AssertionError(f"nothing runs beside {item.compute[0].operator.name} forward")
        if isinstance(item, Collective):
            if item.kind == "all-gather":
                self.source = value
            owner = self.plan.owner(item)
            return (
                Exchanging(self.plan.kernels[owner].exchange(item, value, self.visits[owner]))
                .begin()
                .finish()
            )
        return self._compute(item.operator, value)

    def _compute(self, op: Operator, value: Value) -> Value:
        visit = self.visits[op.name]
        if op.name in self.plan.forks:
            self.stream = value
        if isinstance(op, Linear):
            visit.source, self.source = self.source, None
        y = self._kernel(op).forward(value, visit)
        visit.source = None
        if isinstance(op, Residual):
            assert self.stream is not None
            y = self.stream + y
        return y

    def _kernel(self, op: Operator) -> Kernel:
        return self.plan.kernels[op.name]

    # -- recomputation ------------------------------------------------------------------------------------------

    def _again(self, item: Item) -> None:
        """One item of a row that is run again; its result goes to the operator whose input was dropped."""
        for visit in self.visits.values():
            visit.keep = EVERYTHING
        begins = self.row is None
        if isinstance(item, Collective):
            if begins:
                self.row = self._kept_after(item)
            self.row = self._forward(item, self.row)
            return
        assert isinstance(item, Compute), item
        op, visit = item.operator, self.visits[item.operator.name]
        if begins:
            if op.name in self.plan.forks:
                self.stream = visit.kept["input"]
            self.row = self._kernel(op).again(visit)
        else:
            self.row = self._compute(op, self.row)
        user = self.plan.user(op.name)
        if user is not None and self.plan.waits_for_input(user):
            self.plan.kernels[user].restore(self.row, self.visits[user])

    def _kept_after(self, item: Collective) -> Value:
        """What the operator behind an edge kept: the part of its input that this rank holds."""
        user = self.plan.user(self.plan.owner(item))
        assert user is not None
        return self.visits[user].kept["input"]

    # -- backward -----------------------------------------------------------------------------------------------

    def _gradient(self, item: Item, g: Value) -> Value:
        if isinstance(item, Collective):
            owner = self.plan.owner(item)
            return Exchanging(self.plan.kernels[owner].exchange(item, g, self.visits[owner])).begin().finish()
        if isinstance(item, Overlap):
            beside = [self._begin(collective) for collective in item.beside]
            for compute in item.compute:
                g = self._one_gradient(compute, g)
            for exchange in beside:
                exchange.finish()
            return g
        return self._one_gradient(item, g)

    def _begin(self, item: Collective) -> Exchanging:
        owner = self.plan.owner(item)
        return Exchanging(self.plan.kernels[owner].exchange(item, None, self.visits[owner])).begin()

    def _one_gradient(self, item: Compute, g: Value) -> Value:
        op, visit = item.operator, self.visits[item.operator.name]
        if item.phase == "W":
            self._kernel(op).weight_gradient(visit)
            return g
        if isinstance(op, Residual):
            self.waiting = g
        g = self._kernel(op).input_gradient(g, visit)
        if op.name in self.plan.forks:
            assert self.waiting is not None
            g, self.waiting = g.add_(self.waiting), None
        return g


def _is_again(item: Item) -> bool:
    if isinstance(item, Collective):
        return item.phase == "R"
    computes: Iterable[Compute] = (item,) if isinstance(item, Compute) else item.compute
    return all(compute.phase == "R" for compute in computes)


def live_bytes(visits: Iterable[Visit]) -> int:
    """Bytes of the distinct storages that visits keep."""
    storages = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for visit in visits
        for tensor in visit.kept.values()
    }
    return sum(storages.values())
