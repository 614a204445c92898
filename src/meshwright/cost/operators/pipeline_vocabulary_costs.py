"""The cost of a rank's share of a spread vocabulary, as arrays: seconds of passes and exchanges, bytes.

All shares of a plan are equal. Which pass computes what and which exchange carries what is said by
``program/pipeline_vocabulary.py``; when they run is found by playing the schedule's lists with all of them
(``cost/pipeline_time/time_action_lists.py``). An exchange keeps a rank's compute stream for a part of its time, as
a message does: the pass behind which a rank enters it, or before which it comes, takes so much longer.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.program.model_states.state_elements import Elements
from meshwright.program.pass_items import PassKind
from meshwright.schedules.action import Kind

Floats = NDArray[np.float64]
ENTERS = {"E": "REDUCE_E", "S": "REDUCE_S", "T": "REDUCE_T"}
"""The sum over all ranks that a rank enters behind a pass."""


@dataclass(frozen=True, slots=True)
class Share:
    """Of every plan (n,): ``seconds`` of E, S, T and D and of the exchanges, elements, bytes kept from S to T.

    ``occupancy`` is the part of an exchange's time that keeps a rank's compute stream.
    """

    seconds: Mapping[PassKind, Floats]
    exchanges: Mapping[Kind, Floats]
    occupancy: float
    elements: Elements
    kept_bytes: Floats

    @property
    def whole_s(self) -> Floats:
        """All passes of a micro-batch."""
        return sum(self.seconds.values(), start=np.zeros(1))

    def on_ranks(self, first: int, last: int, ranks: int, messages: bool) -> dict[str, Floats]:
        """Seconds of each pass on every rank, (n, P), with what exchanges keep of it.

        ``first`` and ``last`` are the ranks of the first and of the last stage, which broadcast.
        """
        kept: dict[str, Floats] = {
            kind: self.occupancy * messages * seconds for kind, seconds in self.exchanges.items()
        }
        nothing = np.zeros_like(self.kept_bytes)
        passes: dict[str, Floats] = {
            kind: np.repeat(seconds[:, None], ranks, 1) for kind, seconds in self.seconds.items()
        }
        for kind, exchange in ENTERS.items():
            passes[kind] += kept.get(exchange, nothing)[:, None]
        for kind, exchange, sender in (("S", "BROADCAST_F", last), ("D", "BROADCAST_B", first)):
            passes[kind] += np.where(np.arange(ranks) == sender, 0.0, kept[exchange][:, None])
        return passes
