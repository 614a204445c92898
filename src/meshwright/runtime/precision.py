"""Dtypes of a run: bf16 as on accelerators, fp32, and fp64 for proofs.

What a plan writes under ``dtypes`` replaces the runtime's own types of states. In a proof in fp64 all states are wide;
a proof of their rounding (``ROUNDED``) stores them as a run in bf16 does and computes everything else in fp64.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

ROUNDED = "rounded"
"""The name of the precision with states as in a run in bf16, and everything else in fp64."""
STATE_DTYPES: Mapping[str, torch.dtype] = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp8": torch.float8_e4m3fn,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """Dtypes of one run.

    ``compute``: weights in use, activations, messages. ``statistic``: maxima and sums of the loss, norms of gradients,
    sums over ranks and the arithmetic of the optimizer. ``master``: the optimizer's parameters. ``gradient``: where
    gradients are accumulated; ``reduce`` and ``gather``: gradients and parameters on the wire.
    """

    compute: torch.dtype
    statistic: torch.dtype
    master: torch.dtype
    gradient: torch.dtype
    reduce: torch.dtype
    gather: torch.dtype
    first_moment: torch.dtype
    second_moment: torch.dtype

    @classmethod
    def of(cls, compute: torch.dtype, wide: torch.dtype) -> "Precision":
        """Return a precision that computes in one dtype, and sums and stores states in another."""
        return cls(
            compute=compute,
            statistic=wide,
            master=wide,
            gradient=wide,
            reduce=wide,
            gather=compute,
            first_moment=wide,
            second_moment=wide,
        )

    @property
    def mixed(self) -> bool:
        """True if products and their sums have different dtypes."""
        return self.compute != self.gradient


PRECISIONS: Mapping[str, Precision] = {
    "bf16": Precision.of(torch.bfloat16, torch.float32),
    "fp32": Precision.of(torch.float32, torch.float32),
    "fp64": Precision.of(torch.float64, torch.float64),
}


def precision_of(name: str, types: Mapping[str, str]) -> Precision:
    """Return the dtypes of a run whose states have other types than the runtime's own, by key of ``dtypes``."""
    if name == "fp64":
        return PRECISIONS[name]
    base = PRECISIONS["bf16" if name == ROUNDED else name]
    dtypes = {key: base.compute if word == "none" else STATE_DTYPES[word] for key, word in types.items()}
    stored = replace(base, **dtypes)
    return replace(stored, compute=torch.float64, statistic=torch.float64) if name == ROUNDED else stored
