"""Remarks on packed documents: each target packs in its data pipeline, without an option.

torchtitan keeps them apart whatever it is told (``models/common/config_utils.py``: "language models always use
block_causal masking"). Megatron's pre-training data make a mask of them (``--reset-attention-mask``), which the causal
kernels of Transformer Engine do not read (Megatron-LM, issue 2357); its data for fine-tuning pack with the lengths of
documents, which they do. Scripts on Hugging Face's classes have collators for it.
"""

from meshwright.frameworks.exporting.export_result import Refusal
from meshwright.frameworks.exporting.uniform_plan import UniformPlan
from meshwright.plans.rules.not_in_this_release import workload_of

DOCUMENT_BOUNDARIES = {
    "torchtitan": "kept apart by torchtitan itself, where the label behind a document's end counts",
    "megatron": "packed and kept apart by the data set of --sft itself, by its own lengths",
    "bridge": "packed and kept apart by the data of a recipe for fine-tuning, where it is told so",
    "script": "kept apart where the training script's collator says positions within documents (TRL: --packing)",
}


def packing_refusals(plan: UniformPlan, target: str) -> list[Refusal]:
    """Return the remark on a plan with packed documents."""
    documents = workload_of(plan.long).documents
    return (
        []
        if documents is None
        else [Refusal("workload.documents", str(documents), DOCUMENT_BOUNDARIES[target])]
    )
