"""Layers for further tokens (``model/operators/multi_token_prediction.py``) in the words of ``pretrain_gpt.py``
(megatron-core 0.19.2).

``--num-layers`` are the main model's. ``--mtp-num-layers`` D come behind them, each made like the last of those, and
all stand in one stage; their losses are computed in the last one, with the head. λ is ``--mtp-loss-scaling-factor``:
Megatron adds λ/D · Σ_k (the mean over the labels that module k has), where DeepSeek-V3 (eq. 24) divides by all labels
of the main loss. A module counts its layers from 1, and the list of windows is read by that number. Sources:
megatron-core 0.19.2, ``core/transformer/multi_token_prediction.py``, ``training/arguments.py``,
``core/transformer/pipeline_parallel_layer_layout.py``; Megatron-LM, ``gpt_builders.py``.
"""

from meshwright.frameworks.exporting.export_result import Refusal
from meshwright.frameworks.exporting.uniform_plan import UniformPlan
from meshwright.model.architecture import Architecture


def next_token_refusals(plan: UniformPlan, arch: Architecture) -> list[Refusal]:
    """Return the remark that Megatron divides a loss by the labels that are left."""
    count, length = arch.next_token_layers, plan.long.workload.seq_len
    if not count:
        return []
    left = max(1, length - count)
    why = (
        f"module k's loss is divided by the seq_len - k labels that it has, and here by all {length} (DeepSeek-V3, "
        f"eq. 24): up to {length / left:.6g} times as much"
    )
    return [Refusal("model.next_token_weight", str(arch.next_token_weight), why)]
