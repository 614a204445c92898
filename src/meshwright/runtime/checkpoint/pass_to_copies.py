"""Pass what a rank has read to the ranks that hold copies of it, so that files are read once.

Each stretch goes from its owner to every rank that holds it too. Ranks send and receive in the order of the stretches'
names, which is the same everywhere, so no two of them wait for each other.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist

from meshwright.runtime.checkpoint.stored_stretch import Stretch
from meshwright.runtime.executor.rank import Rank


def pass_to_copies(rank: Rank, held: Sequence[Stretch]) -> None:
    """Send stretches that this rank owns, and receive the others that it holds; every rank calls it."""
    here, ranks = rank.place.rank, rank.place.ranks
    everyone: list[list[tuple[str, int]]] = [[]] * ranks
    with rank.communicator.naming("lists of copies", tuple(range(ranks))):
        dist.all_gather_object(everyone, [(of.name, of.owner) for of in held if of.owner != here])
    owned = {of.name: of for of in held if of.owner == here}
    received = {(of.name, of.owner): of for of in held if of.owner != here}
    transfers = sorted((name, owner, to) for to, names in enumerate(everyone) for name, owner in names)
    with rank.communicator.naming("copies of shards", tuple(range(ranks))):
        for name, owner, to in transfers:
            if owner == here:
                dist.send(_wire(owned[name].values, rank), to)
            elif to == here:
                stretch = received[name, owner]
                wire = _wire(torch.empty_like(stretch.values), rank)
                dist.recv(wire, owner)
                stretch.set(wire.view(stretch.memory[0].dtype))


def _wire(values: torch.Tensor, rank: Rank) -> torch.Tensor:
    """Return values as bytes on the device that ranks communicate from."""
    return values.detach().to(rank.communicator.device).contiguous().view(torch.uint8)
