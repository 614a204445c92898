"""Recipes of training in fp8: how the scales of 8-bit numbers are found.

current
    one scale for each tensor, from the tensor itself: it is read twice (Transformer Engine's current scaling).
delayed
    one scale for each tensor, from the largest values of earlier steps (Transformer Engine's delayed scaling).
blockwise
    a scale for each 128 × 128 block of weights and 1 × 128 of activations (DeepSeek-V3, arXiv 2412.19437, section 3.3).
tensorwise, rowwise
    one scale for each tensor, or for each row, from the numbers themselves (torchao.float8).
"""

from typing import Literal

Fp8Recipe = Literal["current", "delayed", "blockwise", "tensorwise", "rowwise"]
FP8_RECIPES: tuple[Fp8Recipe, ...] = ("current", "delayed", "blockwise", "tensorwise", "rowwise")
OTHER_PRECISIONS: dict[str, tuple[str, Fp8Recipe]] = {
    "fp8-cs": ("fp8", "current"),
    "fp8-ds": ("fp8", "delayed"),
    "fp8-sc": ("fp8", "blockwise"),
}
"""Others' names of a precision together with its recipe."""
