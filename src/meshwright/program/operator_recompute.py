"""Count the bytes that torchtitan's selective recomputation keeps: results of attention and of every second product.

torchtitan 0.3 (``SelectiveAC``): of a layer's products, in the order of their calls, the first, third, … results are
kept; products with a bias are other operators (``addmm``), whose results are all kept; those of routers and grouped
ones are not. Everything else runs again from the layer's input, exchanges included: with tp the result of a row-cut
product is kept before it is summed up, for all tokens.
"""

from collections.abc import Iterator

from meshwright.model.graph import Block
from meshwright.model.operators.operator_types import Attention, Linear
from meshwright.program.local_shape import ACTIVATION_BYTES, STATISTIC_BYTES, LocalShape, Mode, Number
from meshwright.stack.stack import Stack

ROUTERS = ("router",)


def keeps_products(block: Block, stack: Stack) -> bool:
    """Return true if a block is recomputed selectively, and the stack keeps products then."""
    return stack.selective_keeps_products and block.recompute == stack.selective_recompute


def kept_product_bytes(block: Block, shape: LocalShape, mode: Mode) -> Number:
    """Bytes of the results that are kept, without the layer's input."""
    kept: Number = 0
    for op in block.operators:
        if isinstance(op, Attention):
            row = ACTIVATION_BYTES * op.v_dim + STATISTIC_BYTES
            kept = kept + row * op.heads * shape.of(op).tokens / shape.tp
    for op, outputs in kept_products(block):
        own = shape.of(op)
        tokens = own.sequence_tokens(mode) if op.place == "sequence" else own.tokens
        kept = kept + ACTIVATION_BYTES * outputs * tokens / (shape.tp if op.split == "column" else 1)
    return kept


def kept_products(block: Block) -> Iterator[tuple[Linear, int]]:
    """Yield the operator and the outputs of every matrix whose product is kept."""
    count = 0
    for op in block.operators:
        if not isinstance(op, Linear) or op.name in ROUTERS:
            continue
        names = {parameter.name for parameter in op.parameters}
        for weight in (parameter for parameter in op.parameters if len(parameter.shape) == 2):
            has_bias = weight.name.replace(".weight", ".bias") in names
            count += not has_bias
            if has_bias or count % 2:
                yield op, weight.shape[0]
