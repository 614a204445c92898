"""Layers for further tokens (``model/next_tokens.py``) in the words of ``pretrain_gpt.py`` (megatron-core 0.19.2).

``--num-layers`` are the main model's. ``--mtp-num-layers`` D come behind them, each made like the last of those, and
all stand in one stage; their losses are computed in the last one, with the head. λ is ``--mtp-loss-scaling-factor``:
Megatron adds λ/D · Σ_k (the mean over the labels that module k has), where DeepSeek-V3 (eq. 24) divides by all labels
of the main loss. A module counts its layers from 1, and the list of windows is read by that number. Sources:
megatron-core 0.19.2, ``core/transformer/multi_token_prediction.py``, ``training/arguments.py``,
``core/transformer/pipeline_parallel_layer_layout.py``; Megatron-LM, ``gpt_builders.py``.
"""

from collections.abc import Iterator

from meshwright.errors import Problem
from meshwright.export.option_list import Option
from meshwright.export.result import Refusal
from meshwright.export.uniform import UniformPlan
from meshwright.model.architecture import Architecture
from meshwright.model.next_tokens import COUNT

LAYERS, WEIGHT = "--mtp-num-layers", "--mtp-loss-scaling-factor"


def next_token_options(arch: Architecture) -> list[Option]:
    """The number of such layers and how much their losses count; nothing for a model without."""
    if not arch.next_token_layers:
        return []
    return [(LAYERS, str(arch.next_token_layers)), (WEIGHT, str(arch.next_token_weight))]


def next_token_problems(plan: UniformPlan, arch: Architecture) -> Iterator[Problem]:
    """What of such layers Megatron makes in another way, or refuses."""
    count, last = arch.next_token_layers, plan.stages[-1]
    if not count:
        return
    if plan.next_tokens_of(last) < count:
        rule = (
            f"Megatron computes the losses of further tokens with the head: the {count} such layers must be in "
            f"its stage, which has {plan.next_tokens_of(last)} of them"
        )
        hint = f"{count} layers or more in the last stage"
        yield Problem("pipeline.stages", last.count, rule, hint)
    if arch.positions not in ("rope", "none"):
        rule = f"{LAYERS} needs rotary positions, or none"
        yield Problem("model.positions", arch.positions, rule, f"{COUNT}: 0 in the model's file")
    yield from _unlike_the_last(arch)


def _unlike_the_last(arch: Architecture) -> Iterator[Problem]:
    """Layers that are made otherwise than Megatron would make them."""
    main = arch.main_layers
    routed = arch.moe.layers[main - 1 :] if arch.moe else ()
    if len(set(routed)) > 1:
        rule = f"Megatron makes them like the main model's last layer, which has {_experts(routed[0])}"
        hint = f"layer {main - 1} with {_experts(routed[-1])}"
        yield Problem("model.moe", _experts(routed[-1]), rule, hint)
    windowed = [window is not None for window in arch.windows]
    further, taken = windowed[main:], windowed[: arch.next_token_layers]
    if None in arch.windows[:main] and further != taken:
        rule = "Megatron takes the windows of the model's first layers for those that predict further tokens"
        hint = "the same kinds of attention in the first and in the last layers"
        yield Problem("model.windows", _kinds(further), rule, hint)


def _experts(routed: bool) -> str:
    return "experts" if routed else "no experts"


def _kinds(windowed: list[bool]) -> str:
    return ", ".join("windowed" if flag else "full" for flag in windowed)


def next_token_refusals(plan: UniformPlan, arch: Architecture) -> list[Refusal]:
    """That Megatron divides a loss by the labels that are left."""
    count, length = arch.next_token_layers, plan.long.workload.seq_len
    if not count:
        return []
    left = max(1, length - count)
    why = (
        f"module k's loss is divided by the seq_len - k labels that it has, and here by all {length} (DeepSeek-V3, "
        f"eq. 24): up to {length / left:.6g} times as much"
    )
    return [Refusal("model.next_token_weight", str(arch.next_token_weight), why)]
