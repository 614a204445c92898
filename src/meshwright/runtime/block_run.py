"""One block on one micro-batch: the Program's items, one after the other, handed to the kernels.

What a pass does is not written here: F, I and W are the lists of items that the predictor prices. This walks them, and
brings each operator what it reads: results forward, sums of gradients backward (``model/flow.py``). What runs again
begins with what an operator has kept, goes on from operator to operator, and is given to those that dropped their
input.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from meshwright.model.flow import ENTRY, number_of_users, sources, users
from meshwright.model.graph import Block
from meshwright.model.operators import EnterTensor, Linear, Operator, Residual
from meshwright.program.activations import Keeps
from meshwright.program.items import Collective, Compute, Item, Overlap, PassKind
from meshwright.runtime.communicator import Work
from meshwright.runtime.kernels.kernel import Exchange, Kernel
from meshwright.runtime.values import Gradients, Results, Value
from meshwright.runtime.visit import EVERYTHING, Visit


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
class Row:
    """Operators that run again one after the other: what they have made, and the one at work with its value so far."""

    results: Results
    doing: str = ""
    value: Value = None


@dataclass
class BlockRun:
    """A block at work on one micro-batch; ``visits`` live from F until W.

    ``gathered`` is what edges of the tensor region had before they gathered it; ``gradients`` and ``left``, the
    operators that have not passed theirs on yet, belong to I, ``row`` to what runs again in it.
    """

    plan: BlockPlan
    visits: Mapping[str, Visit]
    gathered: Results = field(init=False)
    gradients: Gradients = field(default_factory=Gradients)
    left: list[Operator] = field(default_factory=list)
    row: Row | None = None

    def __post_init__(self) -> None:
        self.gathered = Results(self.plan.readers)
        for visit in self.visits.values():
            visit.others = self.visits

    def forward(self, x: Value) -> Value:
        """F: the block's output, or the loss."""
        for name, visit in self.visits.items():
            visit.keep = self.plan.keeps[name]
        results = Results(self.plan.readers)
        results.put(ENTRY, x)
        for op, items in self.plan.forward:
            value = _of_all([results.take(name) for name in self.plan.sources[op.name]])
            for item in items:
                value = self._forward(op, item, value)
            results.put(op.name, value)
        return results.take(self.plan.operators[-1].name)

    def input_gradient(self, g: Value) -> Value:
        """I: the gradient of the block's input; what is recomputed runs on the way."""
        self.left = list(self.plan.operators)
        self.gradients.add(self.left[-1].name, g)
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
        return self.gradients.take(ENTRY)

    def weight_gradient(self) -> None:
        """W: gradients of matrices and tables."""
        for item in self.plan.items["W"]:
            assert isinstance(item, Compute), item
            self._kernel(item.operator).weight_gradient(self.visits[item.operator.name])

    # -- forward ------------------------------------------------------------------------------------------------

    def _forward(self, op: Operator, item: Item, value: Value) -> Value:
        if isinstance(item, Overlap):
            raise AssertionError(f"nothing runs beside {item.compute[0].operator.name} forward")
        if isinstance(item, Collective):
            if item.kind == "all-gather":
                self.gathered.put(op.name, value)
            return self._exchange(item, value).finish()
        return self._compute(op, value)

    def _compute(self, op: Operator, value: Value) -> Value:
        visit, (source, *_) = self.visits[op.name], self.plan.sources[op.name]
        if isinstance(op, Linear) and source in self.gathered:
            visit.source = self.gathered.take(source)
        y = self._kernel(op).forward(value, visit)
        visit.source = None
        return y

    def _kernel(self, op: Operator) -> Kernel:
        return self.plan.kernels[op.name]

    def _exchange(self, item: Collective, value: Value) -> Exchanging:
        owner = self.plan.owner(item)
        return Exchanging(self.plan.kernels[owner].exchange(item, value, self.visits[owner])).begin()

    # -- recomputation ------------------------------------------------------------------------------------------

    def _again(self, item: Item) -> None:
        """One item of a row that is run again; its result goes to the operators whose input was dropped."""
        if self.row is None:
            self.row = Row(Results(self.plan.readers))
            for visit in self.visits.values():
                visit.keep = EVERYTHING
        row, op = self.row, self.plan.named[self.plan.owner(item)]
        begins = row.doing != op.name
        if begins:
            self._end_operator(row)
            row.doing, row.value = op.name, self._inputs_again(row, op)
        if begins and row.value is None:
            row.value = self._from_kept(row, op, item)
            if isinstance(item, Compute):
                return
        row.value = self._forward(op, item, row.value)

    def _inputs_again(self, row: Row, op: Operator) -> Value:
        """What an operator reads of the row, None where that is not in it.

        Of several results the first one decides, but those that pass an edge pass it together.
        """
        found = [self._made_again(row, name) for name in self.plan.sources[op.name]]
        deciding = found if isinstance(op, EnterTensor) else found[:1]
        return None if any(part is None for part in deciding) else _of_all(found)

    def _made_again(self, row: Row, name: str) -> Value:
        if name not in row.results and name in self.plan.passed_through:
            passed = self._inputs_again(row, self.plan.named[name])
            if passed is not None:
                row.results.put(name, passed)
        return row.results.take(name) if name in row.results else None

    def _from_kept(self, row: Row, op: Operator, item: Item) -> Value:
        """Begin with what an operator kept; behind an edge, with the part of its input that this rank holds."""
        if isinstance(item, Collective):
            behind = [name for name, of in self.plan.sources.items() if op.name in of]
            return _of_all([self.visits[name].kept["input"] for name in behind])
        visit, (source, *_) = self.visits[op.name], self.plan.sources[op.name]
        if source == ENTRY or isinstance(self.plan.named[source], Residual):  # a residual reads it, too
            row.results.put(source, visit.kept["input"])
            row.results.take(source)
        return self._kernel(op).again(visit)

    def _end_operator(self, row: Row) -> None:
        """Hand on what the operator at work in a row has made."""
        if not row.doing:
            return
        row.results.put(row.doing, row.value)
        for user in self.plan.users[row.doing]:
            if self.plan.waits_for_input(user.name):
                of = self.plan.sources[user.name]
                parts = [row.results.held.get(name) for name in of] if row.doing in of else [row.value]
                if all(part is not None for part in parts):
                    self._kernel(user).restore(_of_all(parts), self.visits[user.name])

    def _end_row(self) -> None:
        if self.row is not None:
            self._end_operator(self.row)
            self.row, self.gathered = None, Results(self.plan.readers)

    # -- backward -----------------------------------------------------------------------------------------------

    def _gradient_of(self, name: str) -> Value:
        """The gradient of an operator's result, when all that stand behind it have passed theirs on."""
        while self.left[-1].name != name:
            behind = self.left.pop().name
            self._spread(behind, self.gradients.take(behind))
        return self.gradients.take(name)

    def _pass_on(self, name: str, gradient: Value) -> None:
        """An operator is done: those whose results it read get their gradients."""
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
            return self._kernel(item.operator).input_gradient(g, self.visits[item.operator.name])
        beside = [self._exchange(collective, None) for collective in item.beside]
        for compute in item.compute:
            g = self._gradient(compute, g)
        for exchange in beside:
            exchange.finish()
        return g


def _of_all(values: Sequence[Value]) -> Value:
    """What an operator works on: the result that it reads, or several of them together."""
    return tuple(values) if len(values) > 1 else values[0]


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
