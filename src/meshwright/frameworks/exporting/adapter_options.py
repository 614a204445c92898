"""Adapter options of Megatron-Bridge and PEFT for a plan, and the reasons why other targets have none.

Sources: Megatron-Bridge, ``peft/canonical_lora.py`` (a pair of matrices for each of q, k, v, gate and up; grouped
experts share one for gate and up); PEFT, ``LoraConfig``; transformers 5.23.0, whose experts are no modules by
themselves. torchtitan 0.3.0 and megatron-core 0.19.2 have no option for adapters.
"""

from collections.abc import Iterator, Mapping

from meshwright.errors import Problem
from meshwright.model.graph import ModelGraph
from meshwright.model.operators.operator_types import LowRank
from meshwright.model.transforms.lora_adapters import with_adapters
from meshwright.workload.adapter import FIELD, Adapter
from meshwright.workload.workload import Workload

BRIDGE, ACCELERATE = "megatron-bridge", "accelerate"
WITHOUT: Mapping[str, str] = {
    "megatron-core": "Megatron-LM has no options for adapters; Megatron-Bridge has",
    "torchtitan": "torchtitan 0.3.0 has no option for adapters",
    "deepspeed": "DeepSpeed's configuration has no words for adapters, which a training script would add",
}
BRIDGE_MODULES: Mapping[str, str] = {
    "self_attn.q_proj": "linear_q",
    "self_attn.k_proj": "linear_k",
    "self_attn.v_proj": "linear_v",
    "self_attn.o_proj": "linear_proj",
    "self_attn.q_a_proj": "linear_q_down_proj",
    "self_attn.q_b_proj": "linear_q_up_proj",
    "self_attn.kv_a_proj_with_mqa": "linear_kv_down_proj",
    "self_attn.kv_b_proj": "linear_kv_up_proj",
    "mlp.gate_proj": "linear_fc1_gate",
    "mlp.up_proj": "linear_fc1_up",
    "mlp.down_proj": "linear_fc2",
}
PEFT_FAMILIES = (
    *("llama", "mistral", "ministral3", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text"),
    *("granite", "smollm3", "ernie4_5", "stablelm", "olmo"),
    *("mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v2", "deepseek_v3", "glm4_moe"),
)
"""Families whose modules in transformers have the names of our matrices, each for itself."""


def adapter_problems(work: Workload, model: ModelGraph, target: str) -> Iterator[Problem]:
    """Yield why the files of a target cannot train the adapters of a workload; nothing for other tasks."""
    if work.task != "lora":
        return
    if target in WITHOUT:
        yield Problem("workload.task", "lora", WITHOUT[target], "export --to bridge or accelerate")
        return
    adapter = work.adapter
    if adapter is None:
        rule = "without workload.adapter routers and fused matrices have adapters, which no target trains"
        yield Problem("workload.task", "lora", rule, "adapter: {rank: 32}")
        return
    arch, matrices = model.architecture, adapted_matrices(adapter, model)
    if arch.moe and any(name.startswith("mlp.") for name in matrices):
        rule = {
            BRIDGE: "grouped experts of Megatron-Bridge share an adapter for gate and up",
            ACCELERATE: "experts of transformers are no modules that PEFT adapts",
        }[target]
        yield Problem(f"{FIELD}.targets", "gate, up, down", rule, "targets: [q, k, v, o]")
    if target == BRIDGE and not arch.gated and any(name.startswith("mlp.up") for name in matrices):
        rule = "Megatron-Bridge splits the first matrix of a feed-forward in gate and up, and the model has no gate"
        yield Problem(f"{FIELD}.targets", "up", rule, "targets: [q, k, v, o, down]")
    if target == BRIDGE and (arch.linear or (arch.latent and arch.latent.q_rank is None)):
        yield Problem(
            "model", model.name, "its attention has other modules in Megatron-Bridge", "another model"
        )
    if target == ACCELERATE and arch.family not in PEFT_FAMILIES:
        rule = f"modules of {arch.family} fuse matrices, or have names of their own, in transformers"
        yield Problem("model", model.name, rule, "a model of " + ", ".join(PEFT_FAMILIES[:3]) + " …")


def adapted_matrices(adapter: Adapter, model: ModelGraph) -> tuple[str, ...]:
    """Return the names of all matrices with an adapter, once each."""
    adapted = with_adapters(model, adapter)
    products = (op for block in adapted.blocks for op in block.operators if isinstance(op, LowRank))
    return tuple(dict.fromkeys(matrix.name for op in products for matrix in op.matrices))


def bridge_section(adapter: Adapter, model: ModelGraph) -> dict[str, object]:
    """Return the section ``peft`` of a configuration of Megatron-Bridge."""
    return {
        "_target_": "megatron.bridge.peft.canonical_lora.CanonicalLoRA",
        "target_modules": [BRIDGE_MODULES[name] for name in adapted_matrices(adapter, model)],
        "dim": adapter.rank,
        "alpha": _whole(adapter.rank if adapter.alpha is None else adapter.alpha),
    }


def script_variables(adapter: Adapter, model: ModelGraph) -> dict[str, str]:
    """Return the variables by which the launcher tells a training script of adapters."""
    modules = dict.fromkeys(name.rpartition(".")[2] for name in adapted_matrices(adapter, model))
    return {
        "ADAPTER_RANK": str(adapter.rank),
        "ADAPTER_ALPHA": str(_whole(adapter.rank if adapter.alpha is None else adapter.alpha)),
        "ADAPTER_TARGETS": ",".join(modules),
        "ADAPTER_BASE": adapter.quantised or "none",
    }


def _whole(number: float) -> float | int:
    return int(number) if number == int(number) else number
