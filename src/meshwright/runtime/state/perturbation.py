"""Move a rank's parameters along their noise, block by block and in place.

Each element of a shard is an element of a whole parameter, at a place that the cuts of tp, ep and etp, the order of
experts and the shard itself decide. What pads a shard has no noise. Every product and every sum is rounded by itself,
so that a parameter has the same bits under every cut.
"""

from collections.abc import Callable, Iterator

import torch

from meshwright.program.rank_units.unit_layout import Tensor
from meshwright.runtime.state.noise import noise
from meshwright.runtime.state.sharded_unit import Unit

BLOCK = {"cpu": 2**15}
OTHER_BLOCK = 2**22
"""Elements whose noise is made at once, by type of device: as many as stay in a CPU's cache, or fill an accelerator."""
Change = Callable[[str, torch.Tensor, torch.Tensor], torch.Tensor]
"""Of a parameter's name, elements and noise → the elements after the change."""


def change_by_noise(unit: Unit, key_of: Callable[[str], int], change: Change, wide: torch.dtype) -> None:
    """Change all elements of a unit's shard, computing in the ``wide`` dtype."""
    for name, elements, here in blocks(unit):
        index, inside = elements
        z = noise(key_of(name), index).to(wide)
        values = unit.owned[here]
        values.copy_(torch.where(inside, change(name, values.to(wide), z), values.to(wide)))


def blocks(unit: Unit) -> Iterator[tuple[str, tuple[torch.Tensor, torch.Tensor], slice]]:
    """Yield a unit's shard block by block: name, indices in the whole parameter with a mask, slice of the shard."""
    tensors = {tensor.name: tensor for tensor in unit.layout.tensors}
    size = BLOCK.get(unit.device.type, OTHER_BLOCK)
    for name, of, here in unit.spans():
        for start in range(of.start, of.stop, size):
            stop, at = min(start + size, of.stop), here.start + start - of.start
            yield (
                name,
                whole_indices(tensors[name], start, stop, unit.device),
                slice(at, at + stop - start),
            )


def whole_indices(
    tensor: Tensor, start: int, stop: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the places of local elements start … stop in the flattened whole tensor, and whether they are in it."""
    left = torch.arange(start, stop, device=device)
    index, inside, stride = torch.zeros_like(left), torch.ones_like(left, dtype=torch.bool), 1
    cuts = {cut.dim: cut for cut in tensor.cuts}
    for dim in reversed(range(len(tensor.shape))):
        place, left = left % tensor.shape[dim], left // tensor.shape[dim]
        if cut := cuts.get(dim):
            held = cut.stop - cut.start
            inside &= place < held
            rows = None if cut.rows is None else torch.tensor(cut.rows, device=device)
            place = place + cut.start if rows is None else rows[place.clamp(max=held - 1)]
        index, stride = index + place * stride, stride * tensor.whole_shape[dim]
    return index, inside
