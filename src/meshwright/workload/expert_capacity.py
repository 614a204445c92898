"""Expert capacity: the most tokens that an expert takes; the rest of its tokens are dropped.

A released model has no capacity: a training has one, as it has documents and a batch, so it stands with the workload.
An expert has ceil(tokens · k / E · ``factor``) places in each *scope*, k being the experts of a token and E all of them
(GShard, arXiv 2006.16668; Switch, arXiv 2101.03961), and no more than there are tokens, for none chooses it twice.

============  ======================================================================================================
scope         tokens
============  ======================================================================================================
rank          what one rank has of a micro-batch, cut over cp and tp: Megatron-Core's and DeepSpeed's. Ranks ask nobody
              who is dropped; the answer depends on micro_batch, cp and tp
micro-batch   the sequences that a rank of data parallelism computes at once: it depends on micro_batch
sequence      one sequence: the same tokens in every plan
============  ======================================================================================================

Whoever chose an expert beyond its places is dropped there, and keeps its other experts: ``probs`` drops the smallest
weights, compared in single precision, ``position`` the last tokens, and so does ``probs`` among equal ones. The order
is that of positions, of one position that of sequences. A dropped choice counts nothing: the other weights of its token
stay what they are, and so do the choices that a balance or a correction counts (Megatron-Core, ``moe/router.py``:
``apply_router_token_dropping``, and the losses from the choices before it). ``pad`` fills places that nobody took, so
that every expert has as many rows, whatever routers choose; they are zeros and count nothing.
"""

from dataclasses import dataclass
from math import ceil
from typing import Any, Literal

DropPolicy = Literal["probs", "position"]
CapacityScope = Literal["rank", "micro-batch", "sequence"]

MAX_FACTOR = 2.0**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """A workload's expert capacity."""

    factor: float
    drop: DropPolicy = "probs"
    scope: CapacityScope = "rank"
    pad: bool = False

    def __str__(self) -> str:
        return f"{self.factor:g} by {self.drop} of a {self.scope}{', padded' if self.pad else ''}"

    def places(self, tokens: int, experts: int, chosen: int) -> int:
        """Places of an expert for so many tokens of a scope."""
        return min(tokens, ceil(tokens * chosen / experts * self.factor))

    def scope_tokens(self, tokens: Any, seq_len: Any, micro_batch: Any) -> Any:
        """Tokens of a scope, where a rank has so many of a micro-batch of sequences: numbers, or arrays of them."""
        whole = {"sequence": seq_len, "micro-batch": seq_len * micro_batch}
        return whole.get(self.scope, tokens)
