"""What targets do with documents that share a sequence: a matter of their data, which no option of a plan is about.

torchtitan keeps them apart whatever it is told (``models/common/config_utils.py``: "language models always use
block_causal masking"). Megatron's pre-training data make a mask of them (``--reset-attention-mask``), which the causal
kernels of Transformer Engine do not read (Megatron-LM, issue 2357); its data for fine-tuning pack with the lengths of
documents, which they do. Scripts on Hugging Face's classes have collators for it.
"""

from meshwright.errors import Problem
from meshwright.export.result import Refusal
from meshwright.export.uniform import UniformPlan
from meshwright.model.architecture import Architecture
from meshwright.plan.supported import workload_of

KEPT_APART = {
    "torchtitan": "kept apart by torchtitan itself, where the label behind a document's end counts",
    "megatron": "packed and kept apart by the data set of --sft itself, by its own lengths",
    "bridge": "packed and kept apart by the data of a recipe for fine-tuning, where it is told so",
    "script": "kept apart where the training script's collator says positions within documents (TRL: --packing)",
}


def packing_refusals(plan: UniformPlan, target: str) -> list[Refusal]:
    """What is told of a plan with documents."""
    documents = workload_of(plan.long).documents
    return [] if documents is None else [Refusal("workload.documents", str(documents), KEPT_APART[target])]


def linear_packing_problems(plan: UniformPlan, arch: Architecture) -> list[Problem]:
    """transformers' linear attention goes on over the borders of documents, whatever positions say."""
    documents = workload_of(plan.long).documents
    if documents is None or arch.linear is None:
        return []
    rule = "states of transformers' linear attention do not begin again with a document"
    return [Problem("workload.documents", str(documents), rule, "leave documents out")]


def megatron_packing_problems(plan: UniformPlan) -> list[Problem]:
    """Documents of pre-training would attend to each other."""
    work = workload_of(plan.long)
    if work.documents is None or work.task == "sft":
        return []
    rule = "Transformer Engine's causal kernels do not read the mask that --reset-attention-mask makes"
    return [Problem("workload.documents", str(work.documents), rule, "leave documents out, or task: sft")]
