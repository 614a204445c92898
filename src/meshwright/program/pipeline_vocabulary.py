"""A vocabulary spread over the pipeline ranks: compute, exchanges and memory of its passes.

Every pipeline rank has a share, a P-th of both tables (cut over tp too), which counts as stage K + rank. For each
micro-batch (Yeung et al., arXiv 2411.05288, sections 4 and 5)

=====  =================================  ==================================================
pass   with two barriers                  with one
=====  =================================  ==================================================
E      look-up of the share's rows        the same
S      logits, their maximum and sum      the same, and softmax'·W, what ∇X is summed from
T      ∇X and the table's gradient        the table's gradient
D      gradients of the share's rows      the same
=====  =================================  ==================================================

where softmax' has only the share's own sum. Between them all ranks exchange, for n tokens of h:

============  =============================================================  ===========================
exchange      what                                                           bytes
============  =============================================================  ===========================
REDUCE_E      sum of what was looked up, at the first stage                  2nh
BROADCAST_F   X, the last stage's output                                     2nh
REDUCE_S      maxima, sums of exponentials, target logits; with one barrier  12n (and 2nh)
              then the sum of ∇X, rescaled by them
REDUCE_T      two barriers: the sum of ∇X, at the last stage                 2nh
BROADCAST_B   gradient of what was looked up                                 2nh
============  =============================================================  ===========================

Each kind of exchange has a communicator of its own, on which all ranks take the micro-batches in one order. With
sequence parallelism X and ∇X travel between pipeline ranks cut over tp, and are gathered and summed over tp on both
sides; sums over tp of what was looked up belong to the first stage. From S to T a share keeps all of X and its logits.
Ignored: what an exchange holds on its way, 2nh on a rank for a micro-batch or two (4nh before REDUCE_S with one
barrier), and 12n or so of statistics; that rescaling takes a pass.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import ceil

from meshwright.model.graph import Block, ModelGraph
from meshwright.model.operators.operator_types import Embedding, Linear, Loss
from meshwright.program.activation_bytes import kept_bytes
from meshwright.program.local_shape import ACTIVATION_BYTES, LocalShape, Mode, Number
from meshwright.program.lowering.block_items import LOSS_STATISTICS
from meshwright.program.pass_items import Collective, Compute, Item, PassKind, Phase
from meshwright.program.program import Program, Stage, table_ends
from meshwright.schedules.action import Kind
from meshwright.schedules.vocabulary.vocabulary_form import VocabularyForm
from meshwright.stack.stack import Stack

SHARE_PASSES: tuple[PassKind, ...] = ("E", "S", "T", "D")
"""The passes of a share for a micro-batch."""
Work = tuple[tuple[type, Phase], ...]
"""Operators by their type, each in a phase."""
LOGITS: Work = ((Linear, "F"), (Loss, "F"))
INPUT_GRADIENT: Work = ((Loss, "I"), (Linear, "I"))
TABLE_GRADIENT: Work = ((Linear, "W"),)


def share_work(form: VocabularyForm) -> dict[PassKind, Work]:
    """Return the work of every pass of a share."""
    two = form.barriers > 1
    return {
        "E": ((Embedding, "F"),),
        "S": LOGITS if two else LOGITS + INPUT_GRADIENT,
        "T": INPUT_GRADIENT + TABLE_GRADIENT if two else TABLE_GRADIENT,
        "D": ((Embedding, "W"),),
    }


def share_items(model: ModelGraph, form: VocabularyForm) -> dict[tuple[int, PassKind], tuple[Item, ...]]:
    """Return the items of each block of a share in each pass; all exchanges are actions of their own."""
    return {
        (index, kind): _items(model.blocks[index], work)
        for index in model.vocabulary
        for kind, work in share_work(form).items()
    }


def _items(block: Block, work: Work) -> tuple[Item, ...]:
    return tuple(Compute(op, phase) for kind, phase in work for op in block.operators if isinstance(op, kind))


def ends_together(program: Program) -> bool:
    """Return true if the ranks that hold the embedding, or a share of it, also hold that of the head."""
    (first, _), (last, _) = table_ends(program)
    return (len(program.end_ranks) == 1 and first == last) or program.vocabulary is not None


def share_blocks(model: ModelGraph, kind: PassKind) -> tuple[int, ...]:
    """Return the blocks of a share that a pass runs: the embedding's or the head's."""
    rows, logits = model.vocabulary
    return (rows,) if kind in ("E", "D") else (logits,)


def shares(model: ModelGraph, stages: int, ranks: int) -> tuple[Stage, ...]:
    """Return the share of every pipeline rank, after the K stages; none where the vocabulary lies at the ends."""
    return tuple(
        Stage(stages + rank, rank, model.vocabulary, ()) for rank in range(ranks if model.vocabulary else 0)
    )


def share_exchanges(
    form: VocabularyForm, hidden: int, shape: LocalShape, mode: Mode
) -> Mapping[Kind, tuple[Collective, ...]]:
    """Return one rank's collectives for one micro-batch, by the exchange's name."""
    whole = ACTIVATION_BYTES * hidden * shape.tokens
    cut = ACTIVATION_BYTES * hidden * shape.sequence_tokens(mode)
    gather = (Collective("all-gather", ("tp",), whole, "output", "F"),) if mode.sequence_parallel else ()
    statistics = tuple(
        Collective("all-reduce", ("tp", "pp"), size * shape.tokens, what) for what, size in LOSS_STATISTICS
    )
    kind = "reduce-scatter" if mode.sequence_parallel else "all-reduce"
    gradient = (
        Collective(kind, ("tp",), whole, "gradient of the output", "I"),  # type: ignore[arg-type]
        Collective("reduce", ("pp",), cut, "gradient of the output", "I"),
    )
    last: dict[Kind, tuple[Collective, ...]] = (
        {"REDUCE_S": statistics, "REDUCE_T": gradient}
        if form.barriers > 1
        else {"REDUCE_S": statistics + gradient}
    )
    return {
        "REDUCE_E": (Collective("reduce", ("pp",), whole, "rows"),),
        "BROADCAST_F": (Collective("broadcast", ("pp",), cut, "output"), *gather),
        **last,
        "BROADCAST_B": (Collective("broadcast", ("pp",), whole, "gradients of rows", "W"),),
    }


def share_kept(model: ModelGraph, shape: LocalShape, mode: Mode, stack: Stack) -> Number:
    """Bytes that a share keeps from S to T: X, which stays together for the table's gradient, and its logits."""
    together = replace(mode, sequence_parallel=False)
    return sum(kept_bytes(model.blocks[b], shape, together, stack) for b in model.vocabulary)


def rows_of_share(vocab: int, padded: int, rank: int, ranks: int) -> int:
    """Rows of a table without its padding that one of the shares has."""
    rows = ceil(padded / ranks)
    return min(rows, max(0, vocab - rank * rows))
