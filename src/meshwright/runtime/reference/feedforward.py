"""The feed-forward part of a layer: dense, or experts one after another, with weight 0 where they were not chosen.

Every expert processes every token, so that a token's result does not depend on other tokens' choices, not even in the
last digit; with buckets it processes centroids. Experts' tensors are stacked, (experts, …). Sizes: B sequences, L
positions, D hidden, F feed-forward, E experts.
"""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from meshwright.model.architecture import Architecture, Experts
from meshwright.model.named_tensors import CORRECTION
from meshwright.model.numerics import Numerics
from meshwright.runtime.reference.elementwise import ACTIVATIONS, clamped_swiglu, linear
from meshwright.runtime.reference.expert_buckets import Bucketed
from meshwright.runtime.reference.expert_capacity import Bounded, with_places
from meshwright.runtime.reference.routing import Choice, chosen

Sending = Bounded | Bucketed
"""Limits of what is sent to experts: a capacity, or one row for each bucket of similar tokens."""


def dense(
    arch: Architecture, numerics: Numerics, tensors: Mapping[str, Tensor], name: str, x: Tensor
) -> Tensor:
    """Return down(activation(gate(x)) · up(x)), or down(activation(up(x))); tensors are ``name``.up_proj and so on."""
    up, down = f"{name}.up_proj", f"{name}.down_proj"
    activated = ACTIVATIONS[numerics.activation](
        linear(tensors, f"{name}.gate_proj" if arch.gated else up, x)
    )
    return linear(tensors, down, activated * linear(tensors, up, x) if arch.gated else activated)


def routed(
    arch: Architecture,
    moe: Experts,
    numerics: Numerics,
    tensors: Mapping[str, Tensor],
    unit: str,
    x_BLD: Tensor,
    sending: Sending | None = None,
) -> tuple[Tensor, Choice]:
    """Return the weighted sum of each token's experts plus the shared experts, and the choice.

    ``sending`` limits what experts get.
    """
    assert numerics.routing is not None
    logits_BLE = linear(tensors, f"{unit}.mlp.gate", x_BLD)
    correction_E = tensors[f"{unit}.{CORRECTION}"] if moe.router_correction else None
    choice = chosen(numerics.routing, moe.experts_per_token, logits_BLE, correction_E)
    if isinstance(sending, Bounded):
        choice = with_places(sending, moe, choice)
    sent_BLK = torch.zeros_like(choice.experts, dtype=torch.bool)
    weights_BLE = torch.zeros_like(choice.probabilities).scatter(-1, choice.experts, choice.weights)
    y_BLD = torch.zeros_like(x_BLD)
    for expert in range(moe.experts):
        one = _one_expert(tensors, f"{unit}.mlp.experts", expert)
        if isinstance(sending, Bucketed):
            chose_BLK = choice.experts == expert
            c_BLD, first_BL = sending.centroids(unit, x_BLD, chose_BLK.any(-1))
            sent_BLK |= chose_BLK & first_BL[..., None]
            found_BLD = _expert(arch, numerics, one, c_BLD) + (x_BLD - c_BLD)
        else:
            found_BLD = _expert(arch, numerics, one, x_BLD)
        y_BLD = y_BLD + found_BLD * weights_BLE[..., expert, None]
    if isinstance(sending, Bucketed):
        choice = replace(choice, sent=sent_BLK)
    if moe.shared_intermediate:
        shared_BLD = dense(arch, numerics, tensors, f"{unit}.mlp.shared_experts", x_BLD)
        if moe.shared_gate:
            shared_BLD = shared_BLD * torch.sigmoid(linear(tensors, f"{unit}.mlp.shared_expert_gate", x_BLD))
        y_BLD = y_BLD + shared_BLD
    return y_BLD, choice


def _one_expert(tensors: Mapping[str, Tensor], name: str, expert: int) -> dict[str, Tensor]:
    """Return the tensors of one expert, named like those of a dense part."""
    prefix = f"{name}."
    return {
        f"expert.{key.removeprefix(prefix)}": tensor[expert]
        for key, tensor in tensors.items()
        if key.startswith(prefix)
    }


def _expert(arch: Architecture, numerics: Numerics, tensors: Mapping[str, Tensor], x_BLD: Tensor) -> Tensor:
    if numerics.expert_activation is None:
        return dense(arch, numerics, tensors, "expert", x_BLD)
    gate_BLF, up_BLF = (linear(tensors, f"expert.{which}_proj", x_BLD) for which in ("gate", "up"))
    return linear(tensors, "expert.down_proj", clamped_swiglu(numerics.expert_activation, gate_BLF, up_BLF))
