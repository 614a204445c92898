"""Choose which of a launcher's ranks print: the same command runs on all of them, and one answer is enough.

A launcher ends the other ranks as soon as one has failed. So rank 0 reports an error at once, the first rank of every
other host a little later, and the rest later still: an error that rank 0 has too is printed once, and an error of one
rank alone is still printed. If a launcher ends nobody (srun without ``--kill-on-bad-exit``) every rank prints in the
end.
"""

import time

from meshwright.verbs.run.launcher_place import place_here

OTHERS_FIRST_S = 2.0
"""Longer than a launcher needs to see that a rank has failed (torchrun looks ten times a second)."""


def is_first() -> bool:
    """Return whether this process answers for all: rank 0, or a process that was not launched."""
    place = place_here()
    return place is None or place.rank == 0


def wait_for_lower_ranks() -> None:
    """Wait while a lower rank may report the same error."""
    place = place_here()
    if place is not None and place.rank > 0:
        time.sleep(OTHERS_FIRST_S * (1 if place.local_rank == 0 else 2))
