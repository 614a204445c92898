"""TokenRing: queries circulate, keys and values stay, and partial results return directly to the queries' owner.

At step t a rank attends with the queries of the rank t places before it, passes them on, and returns the output and
the statistics of their rows to that rank, while the next queries arrive (arXiv 2412.20501): a link carries queries in
one direction and results in the other. In the backward pass the queries travel with their outputs, statistics and the
outputs' gradients, and gradients of the queries return.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from meshwright.program.local_shape import ACTIVATION_BYTES, STATISTIC_BYTES
from meshwright.runtime.comm.ring_exchange import RingExchange, RingTransfer, begin_ring_exchange
from meshwright.runtime.kernels.attention.scaled_dot_product import Triple
from meshwright.runtime.kernels.context_parallel.interface import AttentionOutput, Beside, Kept, RingMember
from meshwright.runtime.kernels.context_parallel.tiled_attention import Partial, Rows, everywhere


@dataclass(frozen=True)
class TokenRing(RingMember):
    """A rank of the ring in which queries circulate."""

    def forward(self, heads: Triple, beside: Beside) -> tuple[torch.Tensor, Kept]:
        """Attend while queries go round once; outputs and statistics return directly."""
        there, back = (begin_ring_exchange(self.setting.communicator, item) for item in beside)
        q, k, v = heads
        made, held, coming = Partial(), q.contiguous(), list[tuple[RingTransfer, RingTransfer]]()
        for step in range(self.ranks):
            passing = there.pass_on(held) if step + 1 < self.ranks else None
            part = Partial() if step else made
            self.tiled.attend(part, (held, k, v), self.of(there.place - step), self.mine)
            if step:
                out, statistic = part.sent(held, v, made)
                returned = back.pass_on(statistic, STATISTIC_BYTES, distance=-step)
                coming.append((back.pass_on(out, distance=-step), returned))
            held = passing.wait() if passing else held
        for out_of, statistic_of in coming:
            made.add(everywhere(q), q, out_of.wait(), statistic_of.wait())
        there.end()
        back.end()
        out, statistic = made.complete(q)
        return out, {"statistic": statistic}

    def gradients(self, heads: Triple, of: AttentionOutput, beside: Beside) -> Triple:
        """Return the gradients while the rows' data go round once; gradients of queries return directly."""
        there, back = (begin_ring_exchange(self.setting.communicator, item) for item in beside)
        q, k, v = heads
        held = [part.contiguous() for part in (q, *self.rows(of))]
        dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
        coming: list[RingTransfer] = []
        for step in range(self.ranks):
            passing = _all_on(there, held) if step + 1 < self.ranks else []
            queries, *rows = held
            to = torch.zeros_like(queries) if step else dq
            place = self.of(there.place - step)
            self.tiled.add_gradients((to, dk, dv), (queries, k, v), Rows(*rows), place, self.mine)
            if step:
                coming.append(back.pass_on(to, distance=-step))
            held = [one.wait() for one in passing] or held
        for one in coming:
            dq += one.wait()
        there.end()
        back.end()
        return dq, dk, dv


def _all_on(ring: RingExchange, held: Sequence[torch.Tensor]) -> list[RingTransfer]:
    """Pass on queries, gradients, outputs, and statistics, which have more bytes per element."""
    widths = (ACTIVATION_BYTES, ACTIVATION_BYTES, ACTIVATION_BYTES, STATISTIC_BYTES)
    return [ring.pass_on(part, width) for part, width in zip(held, widths, strict=True)]
