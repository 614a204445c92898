"""Values of Megatron-Bridge options that depend on several fields of a plan, where they differ from Megatron's.

The table of all options, with the names of these values: ``options.py`` of the framework.
"""

from collections.abc import Mapping

from meshwright.frameworks.exporting.export_result import Refusal
from meshwright.frameworks.megatron.exporting.plan_to_options import (
    exchange_refusals,
    gathers_parameters,
    low_precision,
)
from meshwright.frameworks.option_table import Facts

TORCH_NAMES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "fp8": "uint8"}
"""Element types in torch's words; Transformer Engine's optimizer takes uint8 for fp8."""
NAMED_PRECISIONS = {"bf16": ("bf16_mixed", "fp32"), "fp16": ("fp16_mixed", "fp16")}
"""Mixed precisions that Bridge has a name for, and the type of gradients in each."""
PLAIN_PRECISION: Mapping[str, object] = {
    "fp32": False,
    "fp16": False,
    "bf16": False,
    "fp8": None,
    "fp8_recipe": "tensorwise",
    "fp8_param_gather": False,
    "first_last_layers_bf16": False,
    "fp4": None,
    "fp4_param_gather": False,
    "reuse_grad_buf_for_mxfp8_param_ag": False,
}


def mixed_precision(facts: Facts) -> str | dict[str, object]:
    """Bridge's name of the precision where it has one that reduces gradients as the stack does, or all its fields."""
    precision, gradient = facts["workload.precision"], facts["dtypes.gradient"]
    gathers_fp8 = facts["dtypes.gather"] == "fp8"
    if NAMED_PRECISIONS.get(precision, ("", ""))[1] == gradient and not gathers_fp8:
        return NAMED_PRECISIONS[precision][0]
    half = precision == "fp16"
    dtype = "torch.float16" if half else "torch.bfloat16"
    return {
        **PLAIN_PRECISION,
        "fp16": half,
        "bf16": not half,
        **{name: value for name, value in low_precision(facts).items() if value is not None},
        "params_dtype": dtype,
        "pipeline_dtype": dtype,
        "fp8_param_gather": gathers_fp8,
        "grad_reduce_in_fp32": gradient == "fp32",
    }


def torch_name(word: str | None) -> str:
    """Return torch's name of an element type, of fp32 by default."""
    return f"torch.{TORCH_NAMES[word or 'fp32']}"


def narrow_state(path: str, facts: Facts) -> str:
    """Return the type of one of the optimizer's states."""
    return torch_name(facts[path] if facts["dtypes.narrow"] else None)


def overlaps_messages(facts: Facts) -> bool:
    """Return whether messages overlap with compute: then they are sent one by one."""
    return bool(facts["pipeline.virtual_stages"] > 1 and facts["stack.overlap_p2p"])


def batches_messages(facts: Facts) -> bool:
    """Return whether messages are sent together."""
    return facts["layout.pp"] > 1 and not overlaps_messages(facts)


def overlaps_gather(facts: Facts) -> bool:
    """Return whether the optimizer overlaps the gather of parameters."""
    return gathers_parameters(facts) and facts["stack.overlap_parameter_gather"]


def padded_vocab(facts: Facts) -> int:
    """Return the vocabulary that Megatron would pad to; Bridge takes the number unchanged."""
    multiple: int = facts["stack.vocab_multiple"] * facts["layout.tp"]
    return -(-facts["model.vocab"] // multiple) * multiple


def plan_refusals(facts: Facts) -> list[Refusal]:
    """Return the plan keys that Bridge runs differently although the plan stays the same."""
    refusals = exchange_refusals(facts)
    if facts["workload.task"] == "sft":
        why = "the recipe reads pre-training data; recipes for fine-tuning bring data and tokenizer of their own"
        refusals.append(Refusal("workload.task", "sft", why))
    if not facts["stack.attention"].startswith("flash"):
        why = (
            "a file of overrides cannot choose the attention kernel: the recipe does (fused where it can be)"
        )
        refusals.append(Refusal("stack.attention", facts["stack.attention"], why))
    if "model.experts" in facts and facts["stack.deduplicates_exchange"]:
        why = (
            "written as alltoall; DeepEP and HybridEP (model.moe_token_dispatcher_type flex) want variables "
            "and libraries of the site"
        )
        refusals.append(Refusal("stack.deduplicates_exchange", "true", why))
    return refusals
