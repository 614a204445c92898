"""Build the first and the last operators of an encoder: embedding of its input, and its result for the decoder.

A text's tokens are looked up in the decoder's table; the tables of scores by relative position stand beside it. The
encoder's norm ends the stream, and the stage holds it for the cross attention of every decoder layer. Patches of
images have a matrix of their own; behind the last layer neighbouring ones are merged and projected to the decoder's
width, and the rows take their places before the text.
"""

from meshwright.model.architecture import Architecture
from meshwright.model.encoder import TextEncoder, VisionEncoder
from meshwright.model.operators.data_flow import DECODER_BIAS, ENCODER, ENCODER_BIAS, ENTRY
from meshwright.model.operators.operator_types import (
    Activation,
    Embedding,
    EnterTensor,
    JoinImages,
    LeaveTensor,
    Linear,
    MergePatches,
    Norm,
    Operator,
    Parameter,
    PatchEmbedding,
    PlaceImages,
    PositionBias,
    SharedValue,
    Split,
)
from meshwright.model.operators.parameter_tensors import linear_tensors, norm_tensors


def encoder_embedding(arch: Architecture, table: Parameter) -> tuple[Operator, ...]:
    """Return the operators that begin the encoder's stream; ``table`` is the decoder's table of tokens."""
    encoder = arch.encoder
    if isinstance(encoder, TextEncoder):
        return (
            _bias(arch, encoder, "encoder_attention_bias", ENCODER_BIAS),
            _bias(arch, encoder, "attention_bias", DECODER_BIAS),
            Embedding(
                name="encoder_embedding",
                place="tensor",
                vocab=arch.vocab,
                hidden=arch.hidden,
                borrows=(table,),
                reads=(ENTRY,),
                tokens="encoder",
            ),
            LeaveTensor(
                name="leave_encoder_embedding", width=arch.hidden, tokens="encoder", publishes=ENCODER
            ),
        )
    assert isinstance(encoder, VisionEncoder)
    matrix = linear_tensors("patch_embed", encoder.hidden, encoder.patch_elements, "whole", False)
    return (
        PatchEmbedding(
            name="patch_embedding",
            inputs=encoder.patch_elements,
            outputs=encoder.hidden,
            split="whole",
            parameters=matrix,
            reads=(ENTRY,),
            tokens="encoder",
            publishes=ENCODER,
        ),
    )


def _bias(arch: Architecture, encoder: TextEncoder, name: str, published: str) -> PositionBias:
    of_encoder = published == ENCODER_BIAS
    return PositionBias(
        name=name,
        place="tensor",
        heads=arch.heads,
        buckets=encoder.buckets,
        max_distance=encoder.max_distance,
        bidirectional=of_encoder,
        parameters=(Parameter(f"{name}.weight", (encoder.buckets, arch.heads), tp_dim=1),),
        reads=(ENTRY,),
        tokens="encoder" if of_encoder else "text",
        publishes=published,
    )


def encoder_end(arch: Architecture) -> tuple[Operator, ...]:
    """Return the operators of the block between the encoder's layers and the decoder's."""
    encoder = arch.encoder
    if isinstance(encoder, VisionEncoder):
        return _merger(arch, encoder)
    return (
        Norm(
            name="encoder_norm",
            width=arch.hidden,
            parameters=norm_tensors("norm", arch.hidden, arch.norm),
            reads=(ENCODER,),
            tokens="encoder",
        ),
        SharedValue(name="encoder_result", width=arch.hidden, tokens="encoder", publishes=ENCODER),
    )


def _merger(arch: Architecture, encoder: VisionEncoder) -> tuple[Operator, ...]:
    width = encoder.hidden * encoder.merged

    def matrix(name: str, outputs: int, column: bool) -> Linear:
        split: Split = "column" if column else "row"
        return Linear(
            name=f"merger_{name}",
            place="tensor",
            inputs=width,
            outputs=outputs,
            split=split,
            parameters=linear_tensors(f"{name}_proj", outputs, width, split, True),
            tokens="encoder",
            merged=encoder.merged,
        )

    return (
        Norm(
            name="merger_norm",
            width=encoder.hidden,
            parameters=norm_tensors("norm", encoder.hidden, "rmsnorm"),
            reads=(ENCODER,),
            tokens="encoder",
        ),
        MergePatches(name="merge", width=encoder.hidden, tokens="encoder", merged=encoder.merged),
        EnterTensor(name="enter_merger", width=width, tokens="encoder", merged=encoder.merged),
        matrix("up", width, column=True),
        Activation(
            name="merger_activation",
            place="tensor",
            width=width,
            gated=False,
            function="gelu",
            tokens="encoder",
            merged=encoder.merged,
        ),
        matrix("down", arch.hidden, column=False),
        PlaceImages(
            name="place_images", place="tensor", width=arch.hidden, merge=encoder.merge, side=encoder.window
        ),
        LeaveTensor(name="leave_merger", width=arch.hidden),
        JoinImages(name="join_images", width=arch.hidden, merge=encoder.merge, reads=("leave_merger", ENTRY)),
    )
