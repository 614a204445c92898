"""Lower a block to the items of its forward and backward passes.

Compute operators come through as they are; boundary operators become collectives. A dispatch also puts the tokens in
the order of their experts, and a combine puts them back and adds them up, weighed, which is compute on the tokens'
side:

=============  ==================================  =====================================
boundary       forward                             gradient of the input
=============  ==================================  =====================================
EnterTensor    all-gather (sequence parallel)      reduce-scatter, or all-reduce without
LeaveTensor    reduce-scatter, or all-reduce       all-gather (sequence parallel)
Dispatch       all-to-all ep, all-gather etp       reduce-scatter etp, all-to-all ep
Combine        reduce-scatter etp, all-to-all ep   all-gather etp, all-to-all ep
=============  ==================================  =====================================

With sequence parallelism the backward pass gathers the input of the region again, during the gradient of that input
(Korthikanti et al., arXiv 2205.05198, section 4.2.2). What attention exchanges over cp is in
``program/context_parallel/attention_collectives.py``, what linear attention does in
``program/context_parallel/linear_attention_collectives.py``. Full recomputation repeats the whole forward pass with
its collectives; a set repeats its operators, in forward order before the first gradient that needs their results,
with the exchanges of its own (experts' all-to-all, ring) and, with sequence parallelism, the one that it begins
with. A stack whose checkpoints keep no result of an exchange walks the whole layer before its first gradient: all
exchanges run again, and the operators of the set between them (``Stack.recomputes_exchanges``). Activations travel
in 2 bytes.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import groupby

from meshwright.model.graph import Block
from meshwright.model.operators.data_flow import sources, users
from meshwright.model.operators.operator_types import (
    Attention,
    Combine,
    Dispatch,
    EnterTensor,
    GatedNorm,
    LeaveTensor,
    LinearAttention,
    Loss,
    LowRank,
    Operator,
    Residual,
)
from meshwright.program.activation_bytes import drops_output
from meshwright.program.context_parallel.attention_collectives import (
    attention_with_exchanges,
    heads_exchange_after_attention,
    heads_exchange_before_attention,
)
from meshwright.program.context_parallel.linear_attention_collectives import (
    linear_attention_with_exchanges,
    sharded_norm_with_exchange,
)
from meshwright.program.expert_dispatch.dispatch_fanout import ExpertChoice
from meshwright.program.expert_dispatch.dispatch_forms import EP, deduplicated_bytes, logical_bytes
from meshwright.program.local_shape import ACTIVATION_BYTES, LocalShape, Mode, Number
from meshwright.program.pass_items import Collective, Compute, Item, Overlap, PassKind, Phase, exchanges_of
from meshwright.stack.stack import Stack

LOSS_STATISTICS: tuple[tuple[str, int], ...] = (("maximum", 4), ("sums", 8))
"""Bytes of a token's maximum, then of its sum of exponentials and target logit, in fp32; the sums need the maximum."""

BOUNDARIES = (EnterTensor, LeaveTensor)


def forward_items(block: Block, shape: LocalShape, mode: Mode, stack: Stack) -> tuple[Item, ...]:
    """Return the forward pass of one block."""
    return tuple(item for op in block.operators for item in operator_forward_items(op, shape, mode, stack))


def input_gradient_items(block: Block, shape: LocalShape, mode: Mode, stack: Stack) -> tuple[Item, ...]:
    """I: what is recomputed, then gradients of the inputs, last operator first."""
    walks = bool(block.recompute) and stack.recomputes_exchanges
    runs = {} if walks else recomputed_runs(block)
    items: list[Item] = []
    if block.full_recompute or walks:
        items += [_again(item) for item in _walked(block, shape, mode, stack)]
    regathered = _regathered_inputs(block) if mode.sequence_parallel and stack.tp_regathers_input else {}
    for op in reversed(block.operators):
        for run in runs.get(op.name, ()):
            items += [_again(item) for item in _run_again(run, block, shape, mode, stack)]
        gradient = _input_gradient(op, shape, mode, stack)
        enter = regathered.get(op.name)
        if enter is not None:
            again = _tp("all-gather", enter.width, shape.of(enter).tokens, "W", op.name)
            gradient = [_overlapped([Compute(op, "I")], again)]
        items += gradient
    if block.kind == "head":
        items += _weight_gradients(block)
    return tuple(items)


def _regathered_inputs(block: Block) -> dict[str, EnterTensor]:
    """Return, by operator, the entering edge whose result its weight gradient needs again.

    That is the operator behind the edge, or its first adapter where its own weights are frozen. An edge before another
    edge has none: Mamba-2 keeps B and C of all tokens.
    """
    found: dict[str, EnterTensor] = {}
    of = sources(block.operators)
    for before, op in zip(block.operators, block.operators[1:], strict=False):
        if not isinstance(before, EnterTensor) or isinstance(op, EnterTensor):
            continue
        reading = (op, *(o for o in block.operators if isinstance(o, LowRank) and before.name in of[o.name]))
        needing = next((reader for reader in reading if not reader.frozen), None)
        if needing is not None:
            found[needing.name] = before
    return found


def _walked(block: Block, shape: LocalShape, mode: Mode, stack: Stack) -> Iterator[Item]:
    """Yield the forward pass of a block without the computation whose results are kept."""
    for op in block.operators:
        items = operator_forward_items(op, shape, mode, stack)
        if block.recomputes(op.recompute):
            yield from items
        else:
            yield from (exchange for item in items for exchange in exchanges_of(item))


def recomputed_runs(block: Block) -> dict[str, list[tuple[Operator, ...]]]:
    """Return runs of recomputed operators, by the name of the operator before whose gradient they run.

    That is the operator that uses their result, where the result was dropped, or the last of them. Where it belongs to
    a row itself, it must be there before that row.
    """
    if block.full_recompute:
        return {}
    rows = groupby(block.operators, lambda op: block.recomputes(op.recompute))
    runs: dict[str, list[tuple[Operator, ...]]] = {}
    before = {}
    for row in [tuple(row) for again, row in rows if again]:
        before[row] = _user(row[-1], block)
    for row, user in reversed(before.items()):
        of = next((name for other, name in before.items() if any(op.name == user for op in other)), user)
        runs.setdefault(of, []).insert(0, row)
    return runs


def _user(last: Operator, block: Block) -> str:
    """Return the operator that is the first to need the result of ``last`` again in the backward pass.

    Itself where its result is kept, or leaves the region. A dispatch that is not run again needs its input no
    more, and a residual never needs the stream.
    """
    waiting = [
        op
        for op in users(block.operators)[last.name]
        if not (isinstance(op, Dispatch) and not block.recomputes(op.recompute))
        and not (isinstance(op, Residual) and op.stream == last.name)
    ]
    kept = not waiting or isinstance(waiting[-1], LeaveTensor) or not drops_output(last, block)
    return last.name if kept else waiting[-1].name


def _run_again(
    run: tuple[Operator, ...], block: Block, shape: LocalShape, mode: Mode, stack: Stack
) -> list[Item]:
    """Return a recomputed run of operators, after the exchange that completes a partly kept input."""
    of = sources(block.operators)[run[0].name]
    before = next((op for op in block.operators if op.name in of), run[0])
    items = [item for op in run for item in _forward_inside(op, run, shape, mode, stack)]
    after = _user(run[-1], block)
    items += [
        item
        for op in block.operators
        if isinstance(op, Attention) and op.name == after and op not in run
        for item in heads_exchange_before_attention(op, shape, mode, "F")
    ]
    if isinstance(before, EnterTensor) and stack.tp_regathers_input:
        return [*_enter_forward(before, shape.of(before), mode, stack), *items]
    return items


def _forward_inside(
    op: Operator, run: tuple[Operator, ...], shape: LocalShape, mode: Mode, stack: Stack
) -> list[Item]:
    """Return an operator of a run: attention begins with its kept heads; its output was kept too."""
    if isinstance(op, Attention):
        return [
            *([] if op is run[0] else heads_exchange_before_attention(op, shape, mode, "F")),
            *attention_with_exchanges(op, shape, mode, "F"),
        ]
    return operator_forward_items(op, shape, mode, stack)


def weight_gradient_items(block: Block, shape: LocalShape, mode: Mode, stack: Stack) -> tuple[Item, ...]:
    """W: gradients of the weights, last operator first; nothing for the head, whose weights I sees to.

    Until W the gradient of the logits would have to be kept, which is larger than all else of a stage.
    """
    return () if block.kind == "head" else _weight_gradients(block)


def _weight_gradients(block: Block) -> tuple[Item, ...]:
    return tuple(Compute(op, "W") for op in reversed(block.operators) if op.trains)


def backward_items(block: Block, shape: LocalShape, mode: Mode, stack: Stack) -> tuple[Item, ...]:
    """B: both halves of the backward pass."""
    return input_gradient_items(block, shape, mode, stack) + weight_gradient_items(block, shape, mode, stack)


BLOCK_PASSES: dict[PassKind, Callable[[Block, LocalShape, Mode, Stack], tuple[Item, ...]]] = {
    "F": forward_items,
    "B": backward_items,
    "I": input_gradient_items,
    "W": weight_gradient_items,
}
"""How each pass of a block is made."""


def block_passes(stack: Stack) -> tuple[PassKind, ...]:
    """Return the passes that blocks may have under a stack's optimizer."""
    return ("F",) if stack.optimizer.forward_only else tuple(BLOCK_PASSES)


def operator_forward_items(op: Operator, shape: LocalShape, mode: Mode, stack: Stack) -> list[Item]:
    """Return the forward pass of one operator, with the exchanges around it."""
    shape = shape.of(op)
    if isinstance(op, Dispatch):
        return [Compute(op, "F"), *_dispatch_forward(op, shape, mode, stack)]
    if isinstance(op, Combine):
        return [*_combine_forward(op, shape, mode, stack), Compute(op, "F")]
    if isinstance(op, BOUNDARIES):
        return [*_BOUNDARY_FORWARD[type(op)](op, shape, mode, stack)]
    if isinstance(op, Attention):
        return [
            *heads_exchange_before_attention(op, shape, mode, "F"),
            *attention_with_exchanges(op, shape, mode, "F"),
            *heads_exchange_after_attention(op, shape, mode, "F"),
        ]
    if isinstance(op, LinearAttention):
        return linear_attention_with_exchanges(op, shape, mode, "F")
    if isinstance(op, GatedNorm):
        return sharded_norm_with_exchange(op, shape, "F")
    if isinstance(op, Loss):
        return [*_loss_collectives(op, shape, stack), Compute(op, "F")]
    return [Compute(op, "F")]


def _input_gradient(op: Operator, shape: LocalShape, mode: Mode, stack: Stack) -> list[Item]:
    shape = shape.of(op)
    if isinstance(op, Dispatch):
        return [*_dispatch_backward(op, shape, mode, stack), Compute(op, "I")]
    if isinstance(op, Combine):
        return [Compute(op, "I"), *_combine_backward(op, shape, mode, stack)]
    if isinstance(op, BOUNDARIES):
        return [*_BOUNDARY_BACKWARD[type(op)](op, shape, mode, stack)]
    if isinstance(op, Attention):
        return [
            *heads_exchange_after_attention(op, shape, mode, "I"),
            *attention_with_exchanges(op, shape, mode, "I"),
            *heads_exchange_before_attention(op, shape, mode, "I"),
        ]
    if isinstance(op, LinearAttention):
        return linear_attention_with_exchanges(op, shape, mode, "I")
    if isinstance(op, GatedNorm):
        return sharded_norm_with_exchange(op, shape, "I")
    return [Compute(op, "I")]


def _enter_forward(op: EnterTensor, shape: LocalShape, mode: Mode, stack: Stack) -> list[Collective]:
    return [_tp("all-gather", op.width, shape.tokens, "F", op.name)] if mode.sequence_parallel else []


def _enter_backward(op: EnterTensor, shape: LocalShape, mode: Mode, stack: Stack) -> list[Collective]:
    kind = "reduce-scatter" if mode.sequence_parallel else "all-reduce"
    return [_tp(kind, op.width, shape.tokens, "I", op.name)]


def _leave_forward(op: LeaveTensor, shape: LocalShape, mode: Mode, stack: Stack) -> list[Collective]:
    kind = "reduce-scatter" if mode.sequence_parallel else "all-reduce"
    return [_tp(kind, op.width, shape.tokens, "F", op.name)]


def _leave_backward(op: LeaveTensor, shape: LocalShape, mode: Mode, stack: Stack) -> list[Collective]:
    return [_tp("all-gather", op.width, shape.tokens, "I", op.name)] if mode.sequence_parallel else []


def _dispatch_forward(op: Dispatch, shape: LocalShape, mode: Mode, stack: Stack) -> list[Collective]:
    return [_expert_exchange(op, shape, mode, "F", stack), _expert_tensor("all-gather", op, shape, mode, "F")]


def _dispatch_backward(op: Dispatch, shape: LocalShape, mode: Mode, stack: Stack) -> list[Collective]:
    return [
        _expert_tensor("reduce-scatter", op, shape, mode, "I"),
        _expert_exchange(op, shape, mode, "I", stack),
    ]


def _combine_forward(op: Combine, shape: LocalShape, mode: Mode, stack: Stack) -> list[Collective]:
    return [
        _expert_tensor("reduce-scatter", op, shape, mode, "F"),
        _expert_exchange(op, shape, mode, "F", stack),
    ]


def _combine_backward(op: Combine, shape: LocalShape, mode: Mode, stack: Stack) -> list[Collective]:
    return [_expert_exchange(op, shape, mode, "I", stack), _expert_tensor("all-gather", op, shape, mode, "I")]


_Boundary = Callable[..., list[Collective]]
_BOUNDARY_FORWARD: dict[type[Operator], _Boundary] = {
    EnterTensor: _enter_forward,
    LeaveTensor: _leave_forward,
}
_BOUNDARY_BACKWARD: dict[type[Operator], _Boundary] = {
    EnterTensor: _enter_backward,
    LeaveTensor: _leave_backward,
}


def _tp(kind: str, width: int, tokens: Number, phase: Phase, what: str) -> Collective:
    return Collective(kind, ("tp",), ACTIVATION_BYTES * width * tokens, what, phase)  # type: ignore[arg-type]


def _expert_exchange(
    op: Dispatch | Combine, shape: LocalShape, mode: Mode, phase: Phase, stack: Stack
) -> Collective:
    if not stack.deduplicates_exchange:
        size = ACTIVATION_BYTES * op.width * shape.travelling_rows(mode, op.experts_per_token)
        entry = None if shape.hashing is None else shape.hashing.entry
        return Collective("all-to-all", EP, size, op.name, phase, routed=shape.rows_as_routed, entry=entry)
    row_bytes = ACTIVATION_BYTES * op.width * shape.sequence_tokens(mode)
    choice = ExpertChoice(op.experts, op.experts_per_token, op.groups, op.chosen_groups)
    once = deduplicated_bytes(row_bytes, choice, shape)
    size = logical_bytes(once, shape)
    return Collective("all-to-all", EP, size, op.name, phase, once, routed=True)


def _expert_tensor(
    kind: str, op: Dispatch | Combine, shape: LocalShape, mode: Mode, phase: Phase
) -> Collective:
    rows = shape.expert_rows(mode, op.experts_per_token)
    size = ACTIVATION_BYTES * op.width * rows
    return Collective(kind, ("etp",), size, op.name, phase, routed=True)  # type: ignore[arg-type]


def _loss_collectives(op: Loss, shape: LocalShape, stack: Stack) -> list[Collective]:
    if stack.loss_vocab_parallel:
        return [
            Collective("all-reduce", ("tp",), size * shape.tokens, f"{op.name} {what}")
            for what, size in LOSS_STATISTICS
        ]
    logits = ACTIVATION_BYTES * shape.padded_vocab(op.vocab) * shape.tokens
    return [Collective("all-gather", ("tp",), logits, op.name)]


def _overlapped(compute: list[Compute], collective: Collective) -> Overlap:
    return Overlap(tuple(compute), (collective,))


def _again(item: Item) -> Item:
    """Return the same item in a recomputed forward pass."""
    if isinstance(item, Compute):
        return Compute(item.operator, "R")
    if isinstance(item, Collective):
        return replace(item, phase="R")
    return Overlap(
        tuple(Compute(c.operator, "R") for c in item.compute),
        tuple(replace(collective, phase="R") for collective in item.overlapped),
    )
