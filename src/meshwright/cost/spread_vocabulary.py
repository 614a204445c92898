"""Embedding and head spread over the pipeline ranks (Yeung et al., arXiv 2411.05288), in closed form.

Every rank holds 1/P of both tables. For each micro-batch it computes its part of the logits (pass S) and of the
gradients (pass T) once the last layer's output has been broadcast; between them the ranks exchange maxima and sums of
the softmax, after them the gradient of that output is summed. Where the exchanges run beside other passes, the
backward pass of the last layers begins one or two micro-batches later, which lengthens the pipeline's ends by as many
periods and keeps as many micro-batches more in flight. ``interlaced`` runs S and T on all ranks at the same moment,
as tensor parallelism would: nothing is hidden, and 1.5 times as much is in flight.

=============  ==========  ===============  ==========
form           exchanges   periods more     in flight
=============  ==========  ===============  ==========
vocab-1        beside      2                P + 2
vocab-2        beside      1                P + 1
interlaced     exposed     0                1.5·P
=============  ==========  ===============  ==========

Only validation of measured runs knows these forms yet: plans that ask for them are refused by name, as Programs have no
S and T yet (``schedule/vocabulary/`` puts them into lists). Played lists are shorter than this form, which counts the
periods as a longer fill: by 1 to 2.4 % for 1F1B on 8 ranks. Ignored: the sequence-parallel gather in front of the head.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.operators import Local, operator_seconds
from meshwright.cost.prices import Mesh
from meshwright.cost.pricing import message_seconds
from meshwright.model.graph import Block, ModelGraph
from meshwright.model.operators import Embedding, Linear, Loss
from meshwright.program.bodies import ACTIVATION_BYTES, LOSS_STATISTICS_BYTES
from meshwright.program.items import Phase
from meshwright.program.shape import Number
from meshwright.program.states import Elements, embedding_names, local_elements
from meshwright.program.synchronise import add

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Form:
    """What the table above says of a form; ``in_flight`` multiplies, ``periods`` add."""

    periods: int
    in_flight: float
    exposed: bool


FORMS: dict[str, Form] = {
    "vocab-1": Form(2, 1.0, False),
    "vocab-2": Form(1, 1.0, False),
    "interlaced": Form(0, 1.5, True),
}


@dataclass(frozen=True, slots=True)
class Share:
    """What one stage has of the vocabulary: seconds of S and T, elements, and bytes that a rank keeps; (n,) each.

    Kept are logits and the broadcast output of the micro-batches that wait between S and T.
    """

    form: Form
    forward_s: Floats
    backward_s: Floats
    elements: Elements
    kept_bytes: Floats


def vocabulary_share(
    name: str, model: ModelGraph, local: Local, mesh: Mesh, ranks: int, chunks: int
) -> Share:
    """The share of one of the K stages; a rank's share is divided over its chunks. One row per plan."""
    form = FORMS[name]
    embed, head = model.blocks[model.chain[0][0]], model.blocks[model.chain[-1][0]]
    part = replace(local, shape=replace(local.shape, tp=local.shape.tp * ranks))
    hidden_bytes = ACTIVATION_BYTES * model.architecture.hidden * local.shape.tokens
    exposed = 1.0 if form.exposed else local.forms.constants["overlap_slowdown"]
    exchange = exposed * _exchange_seconds(local, mesh, hidden_bytes) / 2
    dense = add(
        local_elements(embed, part.shape), local_elements(head, part.shape, embedding_names(model.blocks))
    )
    return Share(
        form,
        np.asarray((_seconds(embed, head, ("F",), part) + exchange) / chunks),
        np.asarray((_seconds(embed, head, ("I", "W"), part) + exchange) / chunks),
        Elements(dense.dense / chunks, 0, dense.whole / chunks),
        np.asarray(max(1, form.periods) * (_logit_bytes(head, part) + hidden_bytes)),
    )


def _seconds(embed: Block, head: Block, phases: tuple[Phase, ...], part: Local) -> Number:
    kinds = (Embedding, Linear, Loss)
    operators = [op for block in (embed, head) for op in block.operators if isinstance(op, kinds)]
    return sum((operator_seconds(op, phase, part) for op in operators for phase in phases), start=0.0)


def _exchange_seconds(local: Local, mesh: Mesh, hidden_bytes: Number) -> Number:
    """Two broadcasts, two sums at one rank and the statistics of one micro-batch.

    The output of the last layers and its gradient, that of the embedding and its gradient: each goes along the chain
    of ranks in small pieces, at the speed of its slowest link.
    """
    size, together = mesh.group(("pp",))
    statistics = LOSS_STATISTICS_BYTES * local.shape.tokens
    once = message_seconds(mesh, local.forms, hidden_bytes)  # type: ignore[arg-type]
    return 4 * once + local.forms.collective("all-reduce", statistics, size, together)


def _logit_bytes(head: Block, part: Local) -> Number:
    loss = next(op for op in head.operators if isinstance(op, Loss))
    return part.stack.logit_bytes * part.shape.padded_vocab(loss.vocab) * part.shape.tokens / part.shape.tp
