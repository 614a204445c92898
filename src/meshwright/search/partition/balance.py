"""Balanced partitions of layers into pipeline stages, by time or by memory.

time    the largest sum of F + I + W over the stages of a rank is least, and no rank has more bytes than its capacity
        (YUAN 2.0's non-uniform pipeline, Wu et al., arXiv 2311.15786: the first ranks of 1F1B hold more micro-batches
        and so get fewer layers, or compute some again)
memory  the most bytes of any rank are least; of such partitions the one that is best by time

Ties go to the least sum of squares of what the stages cost: exact with one stage a rank, as good as windows of stages
find it with several. ``Partition.bound`` says how good any partition can be; where it is below what was found the
partition may not be the best, and ``proven`` is false.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from meshwright.search.partition.layer_chain import Chain, Cut, Floats, Measure
from meshwright.search.partition.objective import Task
from meshwright.search.partition.solve import PROVEN, WIDTH, Solved, solved


@dataclass(frozen=True, slots=True)
class Partition:
    """Stage s has the layers ``stops[s]`` to ``stops[s + 1]`` exclusive and computes in mode ``modes[s]``.

    ``seconds`` and ``bytes`` are those of every rank, ``bound`` is the least that any partition may reach of the
    largest of what was asked for.
    """

    stops: tuple[int, ...]
    modes: tuple[int, ...]
    seconds: tuple[float, ...]
    bytes: tuple[float, ...]
    bound: float
    proven: bool

    @property
    def counts(self) -> tuple[int, ...]:
        """Layers of every stage."""
        return Cut(self.stops, self.modes).counts


@dataclass(frozen=True, slots=True)
class Unfit:
    """No partition was found that fits; ``proven``: there is none.

    Of the partition that lacks least, the ``rank`` that lacks most, its bytes and its capacity.
    """

    rank: int
    bytes: float
    capacity: float
    proven: bool


Balance = Callable[[Chain, ArrayLike, int], "Partition | Unfit"]


def by_time(chain: Chain, capacity: ArrayLike = np.inf, width: int = WIDTH) -> Partition | Unfit:
    """Balanced by time; ``capacity``: bytes of every rank, one number or (P,)."""
    most = _capacities(chain, capacity)
    limited = Task(chain, chain.seconds, chain.held, most)
    task = limited if (most < chain.held.everything).any() else Task.free(chain, chain.seconds)
    found = solved(task, width)
    if found.cut is None:
        return _unfit(limited, found)
    return _partition(chain, found.cut, chain.seconds, found.bound)


def by_memory(chain: Chain, capacity: ArrayLike = np.inf, width: int = WIDTH) -> Partition | Unfit:
    """Balanced by memory; by time where a rank would have more bytes than its capacity so."""
    most = _capacities(chain, capacity)
    found = solved(Task.free(chain, chain.held), width)
    if found.cut is None or (chain.loads(chain.held, found.cut) > most).any():
        return by_time(chain, capacity, width)
    level = np.minimum(found.load * (1 + PROVEN), most)
    quick = solved(Task(chain, chain.seconds, chain.held, level), width)
    return _partition(chain, quick.cut or found.cut, chain.held, found.bound)


BALANCES: dict[str, Balance] = {"time": by_time, "memory": by_memory}
"""What stages can be balanced by."""


def _capacities(chain: Chain, capacity: ArrayLike) -> Floats:
    """Of every rank; no more than there are bytes in all."""
    each = np.broadcast_to(np.asarray(capacity, dtype=np.float64), chain.ranks)
    return np.minimum(each, chain.held.everything)


def _partition(chain: Chain, cut: Cut, by: Measure, bound: float) -> Partition:
    seconds, held = (chain.loads(measure, cut) for measure in (chain.seconds, chain.held))
    load = float(chain.loads(by, cut).max())
    return Partition(
        cut.stops,
        cut.modes,
        tuple(seconds.tolist()),
        tuple(held.tolist()),
        bound=min(bound, load),
        proven=bound >= load * (1 - PROVEN),
    )


def _unfit(task: Task, found: Solved) -> Unfit:
    assert found.nearest is not None, "without a limit there is a cut"
    held = task.chain.loads(task.limit, found.nearest)
    rank = int((held - task.most).argmax())
    return Unfit(rank, float(held[rank]), float(task.most[rank]), found.proven)
