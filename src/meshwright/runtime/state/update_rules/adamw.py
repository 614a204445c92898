"""AdamW (Loshchilov and Hutter, arXiv 1711.05101) with bias correction, by PyTorch's fused kernel.

m ← β₁m + (1−β₁)g, v ← β₂v + (1−β₂)g², p ← (1 − lr·λ)p − lr·(m/(1−β₁ᵗ))/(√(v/(1−β₂ᵗ)) + ε).
"""

from collections.abc import Mapping
from typing import cast

import torch
from torch.optim.adamw import adamw as fused_adamw

from meshwright.runtime.state.update_rules.update_rule import Parts, StepValues
from meshwright.workload.optimizers.optimizer_kind import FIRST, SECOND


def adamw(parameters: Parts, gradients: Parts, moments: Mapping[str, Parts], step: StepValues) -> None:
    """Take a step of AdamW."""
    beta1, beta2 = cast(tuple[float, float], step.options["betas"])
    before = [torch.tensor(float(step.number - 1), device=p.device) for p in parameters]
    fused_adamw(
        list(parameters),
        list(gradients),
        list(moments[FIRST]),
        list(moments[SECOND]),
        [],
        before,  # the kernel adds one
        fused=True,
        lr=step.lr,
        beta1=beta1,
        beta2=beta2,
        weight_decay=step.weight_decay,
        eps=cast(float, step.options["epsilon"]),
        amsgrad=False,
        maximize=False,
    )
