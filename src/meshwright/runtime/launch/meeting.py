"""Launched ranks: where they meet, and how the word of the first failure reaches all of them.

The first rank that fails writes so into the store that all share, before it closes a connection; the others, who then
see broken connections or time-outs, say what they read there.
"""

from datetime import timedelta

import torch.distributed as dist

from meshwright.errors import InputError, MeshwrightError, RunError
from meshwright.runtime.launch.environment import Place
from meshwright.runtime.launch.local import RankWork

FAILURE = "failure"
MEETING_S = 300.0
"""How long a launched rank waits for the others to come."""


def run_launched(work: RankWork, place: Place) -> object:
    """``work`` as a rank that torchrun or Slurm started. Raises RunError naming the rank that failed first."""
    store = shared_store(place, MEETING_S)
    try:
        return work(place, store, lambda what, part: None)
    except InputError:
        raise
    except Exception as error:
        own = str(error) if isinstance(error, MeshwrightError) else f"{type(error).__name__}: {error}"
        text = own if own.startswith("rank ") else f"rank {place.rank}: {own}"
        raise RunError(first_failure(store, text)) from error


def shared_store(place: Place, limit_s: float) -> dist.Store:
    """The store where launched ranks meet: torchrun's, or one that rank 0 opens. Raises RunError."""
    limit = timedelta(seconds=limit_s)
    try:
        if place.launcher == "torchrun":
            return next(dist.rendezvous("env://", place.rank, place.ranks, timeout=limit))[0]
        return dist.TCPStore(place.address, place.port, place.ranks, place.rank == 0, limit)
    except (RuntimeError, ValueError, OSError) as error:
        where = f"{place.address}:{place.port}"
        raise RunError(
            f"rank {place.rank} of {place.ranks} did not meet the others at {where}: {error}"
        ) from error


def first_failure(store: dist.Store, own: str) -> str:
    """What the first failing rank wrote; ``own`` if it is this one, or the store is gone."""
    try:
        return store.compare_set(FAILURE, "", own).decode(errors="replace")
    except RuntimeError:
        return own


def agreed(store: dist.Store, place: Place, what: str, own: str) -> str:
    """What rank 0 says of something on which ranks of several hosts could differ."""
    if place.rank == 0:
        store.set(what, own)
    return store.get(what).decode()
