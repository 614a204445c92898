"""How values flow through a block: whose results each operator works on, and who works on its own.

Most operators work on the result of the one before. Those that do not say so (``Operator.reads``): a router reads the
norm that shared experts have read too. A residual adds the branch before it to the stream, which is the result of the
residual before it, or what enters the block, or of an operator that begins another one, or of the one that it names.
"""

from collections.abc import Mapping, Sequence

from meshwright.model.operators import EnterTensor, Operator, Residual

ENTRY = ""
"""Stands for what enters the block."""


def sources(operators: Sequence[Operator]) -> dict[str, tuple[str, ...]]:
    """Names of the operators whose results each operator works on, the branch before the stream."""
    found: dict[str, tuple[str, ...]] = {}
    before = stream = ENTRY
    for op in operators:
        found[op.name] = op.reads or (before,)
        if isinstance(op, Residual):
            found[op.name] = (*found[op.name], op.stream or stream)
        if isinstance(op, Residual) or op.begins_stream:
            stream = op.name
        before = op.name
    return found


def users(operators: Sequence[Operator]) -> dict[str, tuple[Operator, ...]]:
    """The operators that work on the result of each, in order; through the edge of the tensor region, not out of it."""
    by_name = {op.name: op for op in operators}
    direct: dict[str, list[Operator]] = {name: [] for name in by_name}
    for name, of in sources(operators).items():
        for source in of:
            direct.setdefault(source, []).append(by_name[name])
    return {
        name: tuple(
            behind for op in found for behind in (direct[op.name] if isinstance(op, EnterTensor) else (op,))
        )
        for name, found in direct.items()
    }


def result_of(operators: Sequence[Operator]) -> str:
    """The operator whose result is the block's."""
    return next((op.name for op in operators if op.leaves), operators[-1].name)


def number_of_users(operators: Sequence[Operator]) -> Mapping[str, int]:
    """How many operators read each result, edges too; the block's own result is read once, by the next block.

    That of the last operator is read in any case: beside a result that leaves before it is a loss of the block's own.
    """
    numbers = {op.name: 0 for op in operators} | {ENTRY: 0}
    for name in {result_of(operators), operators[-1].name}:
        numbers[name] += 1
    for of in sources(operators).values():
        for source in of:
            numbers[source] += 1
    return numbers
