"""Connect launched ranks, and report the first rank's failure on all of them.

The first rank that fails writes its error into the shared store before it closes a connection; the others, who then see
broken connections or time-outs, report that error.
"""

from datetime import timedelta

import torch.distributed as dist

from meshwright.errors import InputError, MeshwrightError, RunError
from meshwright.runtime.launch.forked_ranks import Listener, RankWork, Report
from meshwright.runtime.launch.launcher_environment import Place

FAILURE = "failure"
MEETING_S = 300.0
"""Seconds that a launched rank waits for the others."""


def run_launched(work: RankWork, place: Place, listen: Listener) -> object:
    """Run ``work`` as a rank that torchrun or Slurm started. Raises RunError naming the rank that failed first.

    ``listen`` receives what this rank tells while it works. An InputError is raised unchanged, and so is an error with
    details.
    """
    store = shared_store(place, MEETING_S)
    try:
        return work(place, store, Report(lambda message: listen(place.rank, message[1])))
    except InputError:
        raise
    except Exception as error:
        if isinstance(error, MeshwrightError) and error.details:  # it says already which rank is at fault
            raise
        own = str(error) if isinstance(error, MeshwrightError) else f"{type(error).__name__}: {error}"
        text = own if own.startswith("rank ") else f"rank {place.rank}: {own}"
        raise RunError(first_failure(store, text)) from error


def shared_store(place: Place, limit_s: float) -> dist.Store:
    """Return the store of launched ranks: torchrun's, or one that rank 0 opens. Raises RunError."""
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
    """Return the first failing rank's error; ``own`` if that is this rank, or the store is gone."""
    try:
        return store.compare_set(FAILURE, "", own).decode(errors="replace")
    except RuntimeError:
        return own


def agreed(store: dist.Store, place: Place, what: str, own: str) -> str:
    """Return rank 0's value of something that ranks on several hosts could see differently."""
    if place.rank == 0:
        store.set(what, own)
    return store.get(what).decode()
