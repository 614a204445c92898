"""Turn an ``Architecture`` into a ``ModelGraph``: embed, the encoder, decoder layers, head as chains of operators.

Layers with the same parts, feed-forward, kind of attention and window are one ``Block``; the chain is run-length coded.
Multi-token-prediction layers are blocks of their own, before the head.
"""

from dataclasses import replace
from itertools import groupby

from meshwright.model.architecture import Architecture, LayerParts, Mixer
from meshwright.model.graph import Block, ModelGraph
from meshwright.model.operators.attention import attention_part
from meshwright.model.operators.cross_attention import cross_attention_part
from meshwright.model.operators.data_flow import DECODER_BIAS, ENTRY
from meshwright.model.operators.encoder_input_output import encoder_embedding, encoder_end
from meshwright.model.operators.encoder_layers import encoder_layer, has_text_encoder
from meshwright.model.operators.feedforward import feedforward_part
from meshwright.model.operators.multi_token_prediction import HEAD_NORM, after_layer, before_layer
from meshwright.model.operators.operator_types import (
    Attention,
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
    kinds = list(zip(arch.parts, routed, arch.mixers, arch.windows, further, strict=True))
    distinct = list(dict.fromkeys(kinds))
    layers = [_layer(arch, *kind) for kind in distinct]
    encoder = _encoder(arch)
    of_encoder = list(dict.fromkeys(encoder))
    blocks = (_embed(arch), *of_encoder, *layers, _head(arch))
    runs = [(1 + of_encoder.index(block), len(list(run))) for block, run in groupby(encoder)]
    runs += [(1 + len(of_encoder) + distinct.index(kind), len(list(run))) for kind, run in groupby(kinds)]
    return ModelGraph(
        architecture=arch,
        blocks=blocks,
        chain=((0, 1), *runs, (len(blocks) - 1, 1)),
        source=arch.source,
    )


def _encoder(arch: Architecture) -> list[Block]:
    """Return the layers of the encoder, if there is one, and the block that hands its result to the decoder."""
    encoder = arch.encoder
    if encoder is None:
        return []
    layers = [with_recompute_sets(encoder_layer(arch, layer)) for layer in range(encoder.layers)]
    return [
        *(Block(_encoder_name(operators), "encoder", operators) for operators in layers),
        Block("encoder-end", "encoder-end", encoder_end(arch)),
    ]


def _encoder_name(operators: tuple[Operator, ...]) -> str:
    """Return the name of an encoder's layer: with its windows, if it has them."""
    side = next(op.side for op in operators if isinstance(op, Attention))
    return "encoder" if side is None else f"encoder-window-{side}"


def _layer(
    arch: Architecture, parts: LayerParts, moe: bool, mixer: Mixer, window: int | None, further: int
) -> Block:
    """Return one decoder layer, named by its parts and window.

    ``further`` is 1 for the first multi-token-prediction layer, which has a copy of the table, 2 for the others.
    """
    name = _layer_name(parts, moe, mixer) + ("" if window is None else f"-window-{window}")
    attention = () if parts == "feed-forward" else attention_part(arch, window, mixer)
    if has_text_encoder(arch):
        attention = (*map(_with_bias, attention), *cross_attention_part(arch))
    feedforward = () if parts == "mixer" else feedforward_part(arch, arch.moe if moe else None)
    operators = (*attention, *feedforward)
    if further:
        table = _vocabulary(arch, EMBEDDING_TABLE)
        before = before_layer(arch, table, first=further == 1)
        operators = (*before, *operators, *after_layer(arch, _head_table(arch)))
        name = f"next-token-{name}" if further == 1 else f"next-tokens-{name}"
    return Block(name, "layer", with_recompute_sets(operators))


def _layer_name(parts: LayerParts, moe: bool, mixer: Mixer) -> str:
    """Return ``dense`` or ``moe``, with the mixer if that is no softmax; a part alone has its own name."""
    if parts == "mixer":
        return "attention" if mixer == "softmax" else mixer
    if parts == "feed-forward":
        return "experts" if moe else "feed-forward"
    return ("moe" if moe else "dense") + ("" if mixer == "softmax" else f"-{mixer}")


def _with_bias(op: Operator) -> Operator:
    """Return an operator of self attention; attention adds the decoder's scores by relative position."""
    return replace(op, biased=True, reads=("qkv", DECODER_BIAS)) if isinstance(op, Attention) else op


def _embed(arch: Architecture) -> Block:
    tables = [_vocabulary(arch, EMBEDDING_TABLE)]
    if arch.positions == "learned":
        tables.append(Parameter("embed_positions.weight", (arch.max_positions, arch.hidden)))
    operators: list[Operator] = [
        *(encoder_embedding(arch, tables[0]) if arch.encoder else ()),
        Embedding(
            name="embedding",
            place="tensor",
            vocab=arch.vocab,
            hidden=arch.hidden,
            parameters=tuple(tables),
            reads=(ENTRY,) if arch.encoder else (),
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
        parameters=(_head_table(arch), *_head_bias(arch)),
    )
    tensors = norm_tensors(HEAD_NORM, arch.hidden, arch.norm)
    norm = Norm(name="final_norm", width=arch.hidden, parameters=tensors)
    enter = EnterTensor(name="enter_head", width=arch.hidden)
    return Block(
        "head", "head", (norm, enter, projection, Loss(name="loss", place="tensor", vocab=arch.vocab))
    )


def _head_table(arch: Architecture) -> Parameter:
    return _vocabulary(arch, EMBEDDING_TABLE if arch.tied_embeddings else "lm_head.weight")


def _head_bias(arch: Architecture) -> tuple[Parameter, ...]:
    bias = Parameter("lm_head.bias", (arch.vocab,), tp_dim=0, vocab_dim=0)
    return (bias,) if arch.head_bias else ()


def _vocabulary(arch: Architecture, name: str) -> Parameter:
    return Parameter(name, (arch.vocab, arch.hidden), tp_dim=0, vocab_dim=0)
