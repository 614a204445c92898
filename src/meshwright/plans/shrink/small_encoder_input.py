"""Choose small inputs of an encoder for plans that are shrunk to be proven: texts of unlike length, two images."""

from meshwright.model.architecture import Architecture
from meshwright.model.encoder import TextEncoder, VisionEncoder
from meshwright.plans.forms.short import ImagesSpec, WorkloadSpec

ENCODER_TOKENS = 12
"""Another number than a small plan's sequence has."""
IMAGES, SQUARES = 2, 6
"""Images of a sequence, and merged squares of one, in two rows: together less than a small plan's sequence."""


def with_encoder_inputs(workload: WorkloadSpec, arch: Architecture) -> WorkloadSpec:
    """Return a small plan's workload with inputs for its model's encoder."""
    encoder = arch.encoder
    if isinstance(encoder, TextEncoder):
        return workload.model_copy(update={"encoder_tokens": ENCODER_TOKENS})
    if isinstance(encoder, VisionEncoder):
        images = ImagesSpec(per_sequence=IMAGES, tokens=SQUARES * encoder.merged)
        return workload.model_copy(update={"images": images})
    return workload
