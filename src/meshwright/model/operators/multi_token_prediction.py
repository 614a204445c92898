"""Layers for multi-token prediction (DeepSeek-V3, arXiv 2412.19437, section 2.2).

Module k (of D) predicts for position i the token i + k + 1, from the token i + k and the stream of module k − 1:

    x = W · [norm(embedding(t_{i+k})); norm(h_{k−1})]          eq. 21: ``next_projection``
    h_k = norm(layer(x))                                       eq. 22 and the norm before the head, ``next_final_norm``
    L = L_main + λ/D · Σ_k −1/T · Σ_i log p_k(t_{i+k+1})       eq. 23 to 25: ``next_head``, ``next_loss``

h_0 is the main model's stream after its last norm, as in Megatron-Core and vLLM. T is the number of labels of
the main loss. A position whose label lies beyond the sequence's or document's end does not count. Each module is one
more layer at the end of the chain, so that a plan can place it like any other. Embedding and output projection are the
main model's: the first module has a copy of the embedding's table if its ranks do not hold it otherwise, whose gradient
is summed with the embedding's as for a tied table; the projection's table is the head's, on the same ranks. Every rank
computes the projection of both inputs whole, on its part of the sequence.
"""

from dataclasses import replace

from meshwright.model.architecture import Architecture, LayerParts
from meshwright.model.families.config_fields import LARGEST_COUNT, Fields
from meshwright.model.operators.data_flow import ENTRY
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
from meshwright.model.operators.parameter_tensors import linear_tensors, norm_tensors

HEAD_NORM = "norm"
"""The module of the main model's last norm."""
COUNT = "num_nextn_predict_layers"
ASKED = "train_nextn_predict_layers"
WEIGHT = "mtp_loss_scaling_factor"
"""λ, as Megatron names it."""
USUAL_WEIGHT = 0.3
"""λ of DeepSeek-V3's first 10T tokens (section 4.2)."""


def with_next_tokens(fields: Fields, arch: Architecture) -> Architecture:
    """Add the prediction layers of a model's file if it requests them; otherwise list them as left out."""
    count = fields.size(COUNT, "num_mtp_layers", default=0, least=0, most=LARGEST_COUNT)
    if not count:
        return arch
    if not fields.flag(ASKED, False):
        text = f"{COUNT} = {count}: layers that predict further tokens; {ASKED}: true plans them"
        return replace(arch, left_out=(text,))
    return with_prediction_layers(arch, count, fields.number(WEIGHT, default=USUAL_WEIGHT, positive=True))


def with_prediction_layers(arch: Architecture, count: int, weight: float = USUAL_WEIGHT) -> Architecture:
    """Add ``count`` multi-token-prediction layers, which are routed if the model has experts."""
    moe = arch.moe and replace(arch.moe, layers=(*arch.moe.layers, *(True,) * count))
    both: LayerParts = "both"
    return replace(
        arch,
        layers=arch.layers + count,
        windows=(*arch.windows, *arch.windows[-1:] * count),
        moe=moe,
        layer_parts=(*arch.layer_parts, *(both,) * count) if arch.layer_parts else (),
        next_token_layers=count,
        next_token_weight=weight,
    )


def without_next_tokens(arch: Architecture) -> Architecture:
    """Return the main model alone."""
    main, numerics = arch.main_layers, arch.numerics
    return replace(
        arch,
        layers=main,
        windows=arch.windows[:main],
        moe=arch.moe and replace(arch.moe, layers=arch.moe.layers[:main]),
        layer_parts=arch.layer_parts[:main],
        next_token_layers=0,
        next_token_weight=0.0,
        numerics=replace(
            numerics, rotary=numerics.rotary[:main], attention_scales=numerics.attention_scales[:main]
        ),
    )


def before_layer(arch: Architecture, table: Parameter, *, first: bool) -> tuple[Operator, ...]:
    """Return the operators from a stream and later tokens to the decoder layer's input; ``table`` is the embedding's.

    The ``first`` module has a copy of it, unless a tied head on its ranks has one, and norms the main model's stream.
    """
    width, owned = arch.hidden, first and not arch.tied_embeddings
    head_norm = Norm(
        name="next_main_norm", width=width, borrows=norm_tensors(HEAD_NORM, width, arch.norm), reads=(ENTRY,)
    )
    return (
        *((head_norm,) if first else ()),
        Norm(
            name="next_stream_norm",
            width=width,
            reads=(head_norm.name if first else ENTRY,),
            parameters=norm_tensors("hnorm", width, arch.norm),
        ),
        Embedding(
            name="next_embedding",
            place="tensor",
            vocab=arch.vocab,
            hidden=width,
            reads=(ENTRY,),
            parameters=(table,) if owned else (),
            borrows=() if owned else (table,),
        ),
        LeaveTensor(name="leave_next_embedding", width=width),
        Norm(name="next_embedding_norm", width=width, parameters=norm_tensors("enorm", width, arch.norm)),
        Linear(
            name="next_projection",
            inputs=2 * width,
            outputs=width,
            split="whole",
            reads=("next_embedding_norm", "next_stream_norm"),
            parameters=linear_tensors("eh_proj", width, 2 * width, "whole", False),
            begins_stream=True,
        ),
    )


def after_layer(arch: Architecture, table: Parameter) -> tuple[Operator, ...]:
    """Return the operators from the layer's result to a loss, by the head's projection on the same ranks."""
    width = arch.hidden
    return (
        Norm(
            name="next_final_norm",
            width=width,
            parameters=norm_tensors("shared_head.norm", width, arch.norm),
            leaves=True,
        ),
        EnterTensor(name="enter_next_head", width=width),
        Linear(
            name="next_head",
            place="tensor",
            inputs=width,
            outputs=arch.vocab,
            split="column",
            borrows=(table,),
        ),
        Loss(
            name="next_loss",
            place="tensor",
            vocab=arch.vocab,
            weight=arch.next_token_weight / arch.next_token_layers,
        ),
    )
