"""Flow of values through a block: the sources of each operator's input, and the users of its result.

Most operators use the result of the previous one. The others name their sources (``Operator.reads``): a router reads
the norm that shared experts have read too. A residual adds the branch before it to the stream: the result of the
previous residual, the block's input, the result of an operator that begins another stream, or the one that it names.

Some results are read by other blocks of the stage: the encoder's stream, which its layers read and replace one after
the other and then every decoder layer reads, and the scores by relative position. An operator ``publishes`` them under
a name that begins with @.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from meshwright.model.operators.operator_types import EnterTensor, Operator, Residual

ENTRY = ""
"""Stands for the block's input."""
ENCODER = "@encoder"
"""The encoder's stream, and its result behind the last layer."""
ENCODER_BIAS, DECODER_BIAS = "@encoder_bias", "@decoder_bias"
"""Scores by relative position of the encoder's and the decoder's attention."""


def published(name: str) -> bool:
    """Return true for a value of the stage, false for a result of the block itself."""
    return name.startswith("@")


def sources(operators: Sequence[Operator]) -> dict[str, tuple[str, ...]]:
    """Return the names of the operators whose results each operator uses, the branch before the stream."""
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
    """Return the operators that use each result, in order.

    Looks through entering edges of the tensor-parallel region.
    """
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
    """Return the operator whose result is the block's."""
    return next((op.name for op in operators if op.leaves), operators[-1].name)


def number_of_users(operators: Sequence[Operator]) -> Mapping[str, int]:
    """Return the number of readers of each result, edges included.

    The block's own result is read once, by the next block.

    The last operator's result is always read: if the block's result leaves earlier, it is the block's own loss.
    """
    numbers = defaultdict(int, {op.name: 0 for op in operators} | {ENTRY: 0})
    for name in {result_of(operators), operators[-1].name}:
        numbers[name] += 1
    for of in sources(operators).values():
        for source in of:
            numbers[source] += 1
    return numbers
