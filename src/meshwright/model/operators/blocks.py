"""Turn an ``Architecture`` into a ``ModelGraph``: embed, decoder layers, head as chains of operators.

Layers with the same feed-forward, kind of attention and window are one ``Block``; the chain is run-length coded.
Multi-token-prediction layers are blocks of their own, before the head.
"""

from itertools import groupby

from meshwright.model.architecture import Architecture, Mixer
from meshwright.model.graph import Block, ModelGraph
from meshwright.model.operators.attention import attention_part
from meshwright.model.operators.feedforward import feedforward_part
from meshwright.model.operators.multi_token_prediction import HEAD_NORM, after_layer, before_layer
from meshwright.model.operators.operator_types import (
    Embedding,
    EnterTensor,
    LeaveTensor,
    Linear,
    Loss,
    Norm,
    Operator,
    Parameter,
)
from meshwright.model.operators.parameter_tensors import norm_tensors
from meshwright.model.operators.recompute_sets import with_recompute_sets

EMBEDDING_TABLE = "embed_tokens.weight"


def build_graph(arch: Architecture) -> ModelGraph:
    """Return the graph of a model: embed ×1, the layers in order, head ×1."""
    routed = arch.moe.layers if arch.moe else (False,) * arch.layers
    plain = arch.main_layers
    further = [min(2, max(0, layer + 1 - plain)) for layer in range(arch.layers)]
    kinds = list(zip(routed, arch.mixers, arch.windows, further, strict=True))
    distinct = list(dict.fromkeys(kinds))
    layers = [_layer(arch, *kind) for kind in distinct]
    runs = [(1 + distinct.index(kind), len(list(run))) for kind, run in groupby(kinds)]
    return ModelGraph(
        architecture=arch,
        blocks=(_embed(arch), *layers, _head(arch)),
        chain=((0, 1), *runs, (len(layers) + 1, 1)),
        source=arch.source,
    )


def _layer(arch: Architecture, moe: bool, mixer: Mixer, window: int | None, further: int) -> Block:
    """Return one decoder layer, named ``dense`` or ``moe``, with its mixer if that is no softmax, or its window.

    ``further`` is 1 for the first multi-token-prediction layer, which has a copy of the table, 2 for the others.
    """
    name = ("moe" if moe else "dense") + ("" if mixer == "softmax" else f"-{mixer}")
    name += "" if window is None else f"-window-{window}"
    operators = (*attention_part(arch, window, mixer), *feedforward_part(arch, arch.moe if moe else None))
    if further:
        table = _vocabulary(arch, EMBEDDING_TABLE)
        before = before_layer(arch, table, first=further == 1)
        operators = (*before, *operators, *after_layer(arch, _head_table(arch)))
        name = f"next-token-{name}" if further == 1 else f"next-tokens-{name}"
    return Block(name, "layer", with_recompute_sets(operators))


def _embed(arch: Architecture) -> Block:
    tables = [_vocabulary(arch, EMBEDDING_TABLE)]
    if arch.positions == "learned":
        tables.append(Parameter("embed_positions.weight", (arch.max_positions, arch.hidden)))
    operators: list[Operator] = [
        Embedding(
            name="embedding", place="tensor", vocab=arch.vocab, hidden=arch.hidden, parameters=tuple(tables)
        ),
        LeaveTensor(name="leave_embedding", width=arch.hidden),
    ]
    if arch.embedding_norm:
        tensors = norm_tensors("embedding_layernorm", arch.hidden, arch.norm)
        operators.append(Norm(name="embedding_norm", width=arch.hidden, parameters=tensors))
    return Block("embed", "embed", tuple(operators))


def _head(arch: Architecture) -> Block:
    """Return the final norm, the output projection (the embedding table itself when tied) and the loss."""
    projection = Linear(
        name="lm_head",
        place="tensor",
        inputs=arch.hidden,
        outputs=arch.vocab,
        split="column",
        parameters=(_head_table(arch),),
    )
    tensors = norm_tensors(HEAD_NORM, arch.hidden, arch.norm)
    norm = Norm(name="final_norm", width=arch.hidden, parameters=tensors)
    enter = EnterTensor(name="enter_head", width=arch.hidden)
    return Block(
        "head", "head", (norm, enter, projection, Loss(name="loss", place="tensor", vocab=arch.vocab))
    )


def _head_table(arch: Architecture) -> Parameter:
    return _vocabulary(arch, EMBEDDING_TABLE if arch.tied_embeddings else "lm_head.weight")


def _vocabulary(arch: Architecture, name: str) -> Parameter:
    return Parameter(name, (arch.vocab, arch.hidden), tp_dim=0, vocab_dim=0)
