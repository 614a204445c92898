"""One GPT layer under one-dimensional tensor parallelism, operator by operator, as arXiv 2410.00273 counts it.

T = l tokens of one micro-batch of one sequence, R = l/t of them in the sequence-parallel region, e hidden, f
feed-forward width, h heads of q = e/h. A matrix product (T×k)·(k×n) has T·n·(2k−1) FLOP forward and T·k·(2n−1) +
k·n·(2T−1) backward and moves each operand and result once in 2 bytes; additions of a dot product are counted one by
one. Attention is one fused operator whose softmax runs on the vector units: its FLOP are scaled by the ratio of the
two peaks. Every collective has the same logical size, 2·T·e bytes. What is ignored: embedding, head, loss,
optimizer, recomputation, causal masks.
"""

from dataclasses import dataclass
from typing import Literal

ELEMENT_BYTES = 2
MASK_BYTES = 1


@dataclass(frozen=True, slots=True)
class GptShape:
    """A GPT: tokens of a sequence, widths, heads, layers."""

    seq_len: int
    hidden: int
    heads: int
    ffn: int
    layers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedOperator:
    """One operator of the layer; pairs are (forward, backward).

    ``flops`` and ``moved_bytes`` of one rank, ``kept_bytes`` until the backward pass, ``parameters`` of one rank,
    ``exchanged_bytes`` the logical size of its collective over tp.
    """

    name: str
    unit: Literal["matrix", "vector"]
    flops: tuple[float, float]
    moved_bytes: tuple[float, float]
    kept_bytes: float = 0.0
    parameters: int = 0
    exchanged_bytes: tuple[float, float] = (0.0, 0.0)


def layer_operators(shape: GptShape, tp: int, peak_ratio: float) -> tuple[PublishedOperator, ...]:
    """The operators of one layer on one rank; ``peak_ratio`` is the matrix units' peak over the vector units'."""
    l, e, f = shape.seq_len, shape.hidden, shape.ffn  # noqa: E741
    rows = l // tp
    size = float(ELEMENT_BYTES * l * e) if tp > 1 else 0.0
    return (
        _matmul("qkv", l, e, 3 * e // tp, (0.0, size)),
        _attention(l, shape.heads // tp, e // shape.heads, peak_ratio),
        _matmul("projection", l, e // tp, e, (size, 0.0)),
        _bias("projection_bias", l, e),
        _dropout("projection_dropout", rows * e),
        _norm("ffn_norm", rows, e, size),
        _matmul("ffn_up", l, e, f // tp, (0.0, size)),
        _bias("ffn_up_bias", l, f // tp),
        _gelu("gelu", l * (f // tp)),
        _dropout("gelu_dropout", l * (f // tp)),
        _matmul("ffn_down", l, f // tp, e, (size, 0.0)),
        _bias("ffn_down_bias", l, e),
        _dropout("ffn_dropout", rows * e),
        _norm("input_norm", rows, e, size),
    )


def _matmul(name: str, rows: int, k: int, n: int, exchanged: tuple[float, float]) -> PublishedOperator:
    inputs, outputs, weights = rows * k, rows * n, k * n
    return PublishedOperator(
        name=name,
        unit="matrix",
        flops=(outputs * (2 * k - 1), inputs * (2 * n - 1) + weights * (2 * rows - 1)),
        moved_bytes=(
            ELEMENT_BYTES * (inputs + outputs + weights),
            2 * ELEMENT_BYTES * (inputs + outputs + weights),
        ),
        kept_bytes=ELEMENT_BYTES * inputs,
        parameters=weights,
        exchanged_bytes=exchanged,
    )


def _attention(tokens: int, heads: int, width: int, peak_ratio: float) -> PublishedOperator:
    """Scores, softmax and values in one kernel; it keeps q, k, v, the result and two statistics per row."""
    rows = heads * tokens
    scores = rows * tokens
    query_key, values = scores * (2 * width - 1), rows * width * (2 * tokens - 1)
    return PublishedOperator(
        name="attention",
        unit="matrix",
        flops=(
            query_key + values + peak_ratio * (4 * scores - rows),
            2 * query_key + 3 * values + peak_ratio * (9 * scores - 2 * rows),
        ),
        moved_bytes=(
            ELEMENT_BYTES * (4 * rows * width + rows),
            ELEMENT_BYTES * (8 * rows * width + 2 * rows),
        ),
        kept_bytes=ELEMENT_BYTES * (4 * rows * width + 2 * rows),
    )


def _bias(name: str, rows: int, width: int) -> PublishedOperator:
    moved = ELEMENT_BYTES * (rows * width + width)
    return PublishedOperator(
        name=name,
        unit="vector",
        flops=(rows * width, rows * width),
        moved_bytes=(moved, moved),
        parameters=width,
    )


def _gelu(name: str, elements: int) -> PublishedOperator:
    return PublishedOperator(
        name=name,
        unit="vector",
        flops=(8 * elements, 13 * elements),
        moved_bytes=(2 * ELEMENT_BYTES * elements, 3 * ELEMENT_BYTES * elements),
        kept_bytes=ELEMENT_BYTES * elements,
    )


def _dropout(name: str, elements: int) -> PublishedOperator:
    moved = (2 * ELEMENT_BYTES + MASK_BYTES) * elements
    return PublishedOperator(
        name=name,
        unit="vector",
        flops=(elements, elements),
        moved_bytes=(moved, moved),
        kept_bytes=MASK_BYTES * elements,
    )


def _norm(name: str, rows: int, width: int, exchanged: float) -> PublishedOperator:
    elements = rows * width
    return PublishedOperator(
        name=name,
        unit="vector",
        flops=(9 * elements, 8 * elements + 4 * rows * (width - 1)),
        moved_bytes=(
            ELEMENT_BYTES * (2 * elements + 2 * rows + 2 * width),
            ELEMENT_BYTES * (5 * elements + 2 * width),
        ),
        kept_bytes=ELEMENT_BYTES * elements,
        parameters=2 * width,
        exchanged_bytes=(exchanged, exchanged),
    )
