"""Time of a layer whose collectives overlap with its kernels, for each form of overlap that a plan can name.

K are kernels and X collectives of the block, K' and X' those of half the tokens. While both run, kernels take longer by
a share ``s`` of the hidden time, as in training, so that two of them together take

    with(K, X) = max(K + s·X, X)

none        Σ K + Σ X, one after the other
two-batch   TokenWeave (arXiv 2505.11329): one half's collective with the other half's kernels. With segments i of
            kernels that end in a collective: Σ_i with(K'_i, X'_i) + with(K'_{i+1}, X'_i). The norm behind an all-reduce
            is in the collective's kernel, on 1/tp of the rows
tile        T3 (arXiv 2401.16677): the reduce-scatter half of an all-reduce follows the tiles of the product before it
nano-batch  NanoFlow (arXiv 2408.12757): products, attention over the cache with other passes, and collectives of
            different nano-batches run at once: with(K'_compute, K'_memory + X') of both halves

An engine that overlaps splits a batch only where that is quicker, so that no form is slower than ``none``. Halves read
all weights again, which is why batches that wait for memory are not split.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from meshwright.cost.serving.operators import ServingLocal, cache_seconds, item_seconds
from meshwright.model.graph import Block
from meshwright.model.operators.operator_types import Attention, ExpertLinear, Linear, Norm
from meshwright.program.local_shape import Number
from meshwright.program.pass_items import Collective, Compute, Item
from meshwright.program.serving.iteration_items import iteration_items

MULTIMEM = "multimem_slowdown"
"""Constant of collectives that leave nearly all processors to kernels."""
REDUCED_PARTS = {"all-reduce": 0.5, "reduce-scatter": 1.0}
"""Part of a collective that reduces."""


def block_form_seconds(block: Block, local: ServingLocal, overlap: str) -> Number:
    """Return the seconds of a block under a form of overlap; never more than without."""
    serial = serial_seconds(block, local)
    return serial if overlap == "none" else np.minimum(serial, FORMS[overlap](block, local))


def serial_seconds(block: Block, local: ServingLocal) -> Number:
    """Return the seconds of a block's items, one after the other."""
    return sum((item_seconds(item, local) for item in iteration_items(block, local)), start=0.0)


def usual_slowdown(local: ServingLocal) -> float:
    """Return the share of hidden seconds by which kernels take longer, as in training."""
    return local.times.forms.constants["overlap_slowdown"]


def together(kernels: Number, collectives: Number, slowdown: float) -> Number:
    """Return the seconds of kernels and collectives that begin at once."""
    return np.maximum(kernels + slowdown * np.asarray(collectives), collectives)


@dataclass(frozen=True, slots=True)
class Segment:
    """Kernels of a block, and the collective that follows them; 0 for the last kernels of a block."""

    kernels: Number
    collective: Number


def _two_batches(block: Block, local: ServingLocal) -> Number:
    half = halved(local)
    slowdown = local.times.constants[MULTIMEM] if local.times.has_multimem else usual_slowdown(local)
    segments = list(_segments(iteration_items(block, half), half))
    total: Number = 0.0
    for one, following in zip(segments, [*segments[1:], segments[0]], strict=True):
        total = total + together(one.kernels, one.collective, slowdown)
        total = total + together(following.kernels, one.collective, slowdown)
    return total


def _segments(items: Iterable[Item], local: ServingLocal) -> Iterable[Segment]:
    """Yield kernels up to each collective that takes time; a norm behind an all-reduce is a part of it."""
    kernels: Number = 0.0
    collective: Number = 0.0
    reduced = False
    for item in items:
        seconds = item_seconds(item, local)
        if isinstance(item, Collective):
            collective, reduced = collective + seconds, reduced or item.kind == "all-reduce"
        elif reduced and isinstance(item, Compute) and isinstance(item.operator, Norm):
            collective = collective + seconds / local.degrees.tp
        else:
            if np.any(np.asarray(collective) > 0):
                yield Segment(kernels, collective)
                kernels, collective, reduced = 0.0, 0.0, False
            kernels = kernels + seconds
    yield Segment(kernels, collective)


def _tiles(block: Block, local: ServingLocal) -> Number:
    slowdown = usual_slowdown(local)
    total: Number = 0.0
    product: Number = 0.0
    for item in iteration_items(block, local):
        seconds = item_seconds(item, local)
        if isinstance(item, Collective):
            seconds = seconds - tile_hidden_seconds(product, seconds, item.kind, slowdown)
        is_product = isinstance(item, Compute) and isinstance(item.operator, Linear | ExpertLinear)
        product = seconds if is_product else 0.0
        total = total + seconds
    return total


def tile_hidden_seconds(product: Number, collective: Number, kind: str, slowdown: float) -> Number:
    """Return the seconds of a collective that hide behind the tiles of the product before it."""
    scattered = REDUCED_PARTS.get(kind, 0.0) * np.asarray(collective)
    return np.maximum(product + scattered - together(product, scattered, slowdown), 0.0)


def _nano_batches(block: Block, local: ServingLocal) -> Number:
    half = halved(local)
    compute: Number = 0.0
    others: Number = 0.0
    for item in iteration_items(block, half):
        seconds = item_seconds(item, half)
        if isinstance(item, Compute) and isinstance(item.operator, Attention):
            over_cache = cache_seconds(item.operator, half)
            compute, others = compute + seconds - over_cache, others + over_cache
        elif isinstance(item, Compute) and isinstance(item.operator, Linear | ExpertLinear):
            compute = compute + seconds
        else:
            others = others + seconds
    return together(2 * np.asarray(compute), 2 * np.asarray(others), usual_slowdown(local))


def halved(local: ServingLocal) -> ServingLocal:
    """Return half of an iteration's tokens."""
    load = local.load
    half = replace(
        load,
        prompt_tokens=load.prompt_tokens / 2,
        prompts=load.prompts / 2,
        sequences=load.sequences / 2,
    )
    return replace(local, load=half)


FORMS: dict[str, Callable[[Block, ServingLocal], Number]] = {
    "two-batch": _two_batches,
    "tile": _tiles,
    "nano-batch": _nano_batches,
}
