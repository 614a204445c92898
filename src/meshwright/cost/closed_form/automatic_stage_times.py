"""Stage times that automatic schedules are made from, for many plans at once."""

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.operators.pipeline_vocabulary_costs import Share
from meshwright.schedules.stage_times import ShareTimes, StageTimes, rounded_times

Floats = NDArray[np.float64]


def automatic_stage_times(
    passes: tuple[Floats, Floats, Floats | None],
    message: Floats,
    kept: tuple[Floats, Floats],
    kind_of: NDArray[np.int64],
    share: Share | None,
) -> list[StageTimes]:
    """Return the stage times that an automatic schedule uses, one entry per plan.

    ``passes`` are the seconds of F, I and W, (n, K) each; ``message`` those of a message, (n,); ``kept`` the
    bytes that stages of each kind keep until I and until W, (n, kinds), and ``kind_of`` each stage's kind.
    """
    forward, input_, weight = passes
    weight = np.zeros_like(input_) if weight is None else weight
    until_input, until_weight = (sizes[:, kind_of].sum(1) for sizes in kept)
    rows, ratio = range(len(forward)), until_weight / until_input
    of_share: list[ShareTimes | None] = [None for _ in rows]
    if share is not None:
        of_share = [ShareTimes(share.seconds["S"][row], share.seconds["T"][row]) for row in rows]
    return [
        rounded_times(forward[row], input_[row], weight[row], message[row], ratio[row], of_share[row])
        for row in rows
    ]
