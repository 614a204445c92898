"""Who of a launcher's ranks speaks: the same command runs on all of them, and one answer is enough.

A launcher ends the other ranks as soon as one has failed. So rank 0 says at once what is wrong, the first of every
other host a little later, and the rest later still: what rank 0 has seen too is read once, and what one rank alone has
seen is still said. Where a launcher ends nobody (srun without ``--kill-on-bad-exit``) every rank speaks in the end.
"""

import time

from meshwright.verbs.launched import place_here

OTHERS_FIRST_S = 2.0
"""More than a launcher needs to see that a rank has failed (torchrun looks ten times a second)."""


def is_first() -> bool:
    """Whether this process answers for all: rank 0, or one that nothing launched."""
    place = place_here()
    return place is None or place.rank == 0


def let_others_speak() -> None:
    """Wait while a rank before this one may say the same."""
    place = place_here()
    if place is not None and place.rank > 0:
        time.sleep(OTHERS_FIRST_S * (1 if place.local_rank == 0 else 2))
