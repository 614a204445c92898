"""Products of rows with their experts' matrices: one grouped GEMM, or a loop over experts.

Rows are sorted by expert, ``counts`` of them for each; matrices are (experts, outputs, inputs). The grouped kernel
(``torch.nn.functional.grouped_mm``) does not support float64, and needs rows aligned to 16 bytes; the loop takes
anything, and proofs run it.
"""

from collections.abc import Sequence

import torch
from torch.nn import functional

ALIGNMENT_BYTES = 16


def product(x: torch.Tensor, w: torch.Tensor, counts: Sequence[int]) -> torch.Tensor:
    """Return x·Wᵀ of each row's expert: (rows, inputs) → (rows, outputs)."""
    if uses_grouped_gemm(x, w):
        return functional.grouped_mm(x.contiguous(), w.transpose(1, 2), offs=_ends(counts, x))
    parts = [functional.linear(rows, of) for rows, of in zip(x.split(list(counts)), w, strict=True)]
    return torch.cat(parts)


def input_product(g: torch.Tensor, w: torch.Tensor, counts: Sequence[int]) -> torch.Tensor:
    """Return g·W of each row's expert: (rows, outputs) → (rows, inputs)."""
    if uses_grouped_gemm(g, w):
        return functional.grouped_mm(g.contiguous(), w, offs=_ends(counts, g))
    return torch.cat([rows @ of for rows, of in zip(g.split(list(counts)), w, strict=True)])


def add_weight_product(total: torch.Tensor, g: torch.Tensor, x: torch.Tensor, counts: Sequence[int]) -> None:
    """Add gᵀ·x over each expert's rows to ``total``, (experts, outputs, inputs)."""
    if uses_grouped_gemm(g, x):
        total += functional.grouped_mm(g.contiguous().t(), x.contiguous(), offs=_ends(counts, x))
        return
    for of, rows, inputs in zip(total, g.split(list(counts)), x.split(list(counts)), strict=True):
        of += rows.t() @ inputs


def uses_grouped_gemm(*tensors: torch.Tensor) -> bool:
    """Return whether the grouped GEMM supports these tensors."""
    return all(
        tensor.dtype != torch.float64 and tensor.shape[-1] * tensor.element_size() % ALIGNMENT_BYTES == 0
        for tensor in tensors
    )


def _ends(counts: Sequence[int], like: torch.Tensor) -> torch.Tensor:
    return torch.tensor(counts, device=like.device).cumsum(0, dtype=torch.int32)
