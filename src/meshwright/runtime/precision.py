"""Dtypes of a run: bf16 as on accelerators, fp32, and fp64 for proofs."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class Precision:
    """Dtypes of one run.

    ``compute``: weights in use, activations, messages. ``master``: the optimizer's parameters and moments, gradient
    buffers and reductions. ``statistic``: maxima and sums of the loss, norms of gradients.
    """

    compute: torch.dtype
    master: torch.dtype
    statistic: torch.dtype

    @property
    def mixed(self) -> bool:
        """True if products and their sums have different dtypes."""
        return self.compute != self.master


PRECISIONS: Mapping[str, Precision] = {
    "bf16": Precision(torch.bfloat16, torch.float32, torch.float32),
    "fp32": Precision(torch.float32, torch.float32, torch.float32),
    "fp64": Precision(torch.float64, torch.float64, torch.float64),
}
