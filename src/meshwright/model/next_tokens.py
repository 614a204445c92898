"""Layers that predict further tokens (multi-token prediction, DeepSeek-V3, arXiv 2412.19437, section 2.2), as planned.

Module k takes the stream behind the layer before it and the embedding of the token k places ahead, each after a norm of
its own, projects both together onto the stream's width, passes a decoder layer, and ends in a norm, the model's own
output projection and a loss. Here it is one more layer at the end of the chain, so that a plan can place it like any.

The first module has a copy of the embedding's table, which counts where its ranks do not have the table anyway; the
output projection's table is the head's, which is taken to be on the same ranks. The projection of both is done whole by
every rank, on its share of the sequence. What is ignored: summing up the gradients of the copies.
"""

from dataclasses import replace

from meshwright.model.architecture import Architecture
from meshwright.model.fields import LARGEST_COUNT, Fields
from meshwright.model.flow import ENTRY
from meshwright.model.operators import (
    Embedding,
    EnterTensor,
    LeaveTensor,
    Linear,
    Loss,
    Norm,
    Operator,
    Parameter,
)
from meshwright.model.tensors import linear_tensors, norm_tensors

COUNT = "num_nextn_predict_layers"
ASKED = "train_nextn_predict_layers"


def with_next_tokens(fields: Fields, arch: Architecture) -> Architecture:
    """A model with the further layers of its file where that asks for them; else it says what is left out."""
    count = fields.size(COUNT, "num_mtp_layers", default=0, least=0, most=LARGEST_COUNT)
    if not count:
        return arch
    if not fields.flag(ASKED, False):
        said = f"{COUNT} = {count}: layers that predict further tokens; {ASKED}: true plans them"
        return replace(arch, left_out=(said,))
    moe = arch.moe and replace(arch.moe, layers=(*arch.moe.layers, *(True,) * count))
    return replace(
        arch,
        layers=arch.layers + count,
        windows=(*arch.windows, *arch.windows[-1:] * count),
        moe=moe,
        next_token_layers=count,
    )


def before_layer(arch: Architecture, table: tuple[Parameter, ...]) -> tuple[Operator, ...]:
    """From the stream and further tokens to what the decoder layer takes; ``table`` is the embedding's, or none."""
    width = arch.hidden
    return (
        Embedding(name="next_embedding", place="tensor", vocab=arch.vocab, hidden=width, parameters=table),
        LeaveTensor(name="leave_next_embedding", width=width),
        Norm(name="next_embedding_norm", width=width, parameters=norm_tensors("enorm", width, arch.norm)),
        Norm(
            name="next_stream_norm",
            width=width,
            reads=(ENTRY,),
            parameters=norm_tensors("hnorm", width, arch.norm),
        ),
        Linear(
            name="next_projection",
            inputs=2 * width,
            outputs=width,
            split="whole",
            reads=("next_embedding_norm", "next_stream_norm"),
            parameters=linear_tensors("eh_proj", width, 2 * width, "whole", False),
        ),
    )


def after_layer(arch: Architecture) -> tuple[Operator, ...]:
    """From the layer's result to a loss, by the head's projection."""
    width = arch.hidden
    return (
        Norm(
            name="next_final_norm", width=width, parameters=norm_tensors("shared_head.norm", width, arch.norm)
        ),
        EnterTensor(name="enter_next_head", width=width),
        Linear(name="next_head", place="tensor", inputs=width, outputs=arch.vocab, split="column"),
        Loss(name="next_loss", place="tensor", vocab=arch.vocab),
    )
