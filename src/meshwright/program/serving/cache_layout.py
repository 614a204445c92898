"""The layout of caches of keys and values, and of states, on the ranks of a pipeline stage.

A cache has heads and tokens. tp cuts the heads, in order; where it has more ranks than there are heads, neighbours hold
copies of one. Several groups of a state space are cut like heads, one is whole. Tokens lie in blocks, of which cp deals
out one after the other: rank j has blocks j, j + cp, …. A latent cache is one head, and a state one token, whole on all
ranks of cp. Ranks of attention_dp have other sequences. ``kv_bytes.py`` has the fullest rank's bytes in closed form.
"""

from dataclasses import dataclass

from meshwright.model.operators.operator_types import Attention, LinearAttention, Operator, StateSpace
from meshwright.program.serving.kv_bytes import FILTER_BYTES, STATE_BYTES, cached_tokens
from meshwright.program.serving.serving_degrees import ReplicaDegrees
from meshwright.program.serving.storage_formats import StorageFormats


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLayout:
    """The cache of one operator and one sequence on the ranks of a stage. ``unit_bytes``: of a head of a token."""

    heads: int
    tokens: int
    unit_bytes: float
    tp: int
    cp: int = 1
    block_tokens: int = 1
    axes: tuple[str, ...] = ("dp_replicate",)

    @property
    def blocks(self) -> int:
        """Blocks of tokens on all ranks of cp together."""
        return -(-self.tokens // self.block_tokens)

    @property
    def block_bytes(self) -> float:
        """Bytes of one head of a block."""
        return self.unit_bytes * self.block_tokens

    def heads_of(self, place: int) -> range:
        """Return the heads that a rank of tp holds."""
        return range(place * self.heads // self.tp, -(-(place + 1) * self.heads // self.tp))

    def blocks_of(self, place: int) -> range:
        """Return the blocks that a rank of cp holds."""
        return range(place % self.cp, self.blocks, self.cp)

    @property
    def largest_bytes(self) -> float:
        """Bytes on the first rank, which holds most."""
        return self.block_bytes * len(self.heads_of(0)) * len(self.blocks_of(0))


def cache_layouts(
    op: Operator, tokens: int, degrees: ReplicaDegrees, formats: StorageFormats, block_tokens: int = 1
) -> tuple[CacheLayout, ...]:
    """Return the layouts of what an operator keeps of a sequence of ``tokens``; none of one that keeps nothing."""
    tp = int(degrees.tp)
    if isinstance(op, Attention):
        heads = op.kv_heads if op.cache_over_tp else 1
        return (
            CacheLayout(
                heads=heads,
                tokens=int(cached_tokens(op, tokens)),
                unit_bytes=formats.kv_bytes * op.kv_width / heads,
                tp=tp,
                cp=int(degrees.cp),
                block_tokens=block_tokens,
                axes=("tp", "cp", "dp_replicate") if op.cache_over_tp else ("cp", "dp_replicate"),
            ),
        )
    if isinstance(op, LinearAttention):
        return (_state(op.heads, STATE_BYTES * op.head_dim**2, tp),)
    if isinstance(op, StateSpace):
        filtered = FILTER_BYTES * (op.filter_length - 1)
        group = 2 * filtered * op.state
        return (
            _state(op.heads, (STATE_BYTES * op.state + filtered) * op.head_dim, tp),
            _state(op.groups, group, tp)
            if op.groups > 1
            else CacheLayout(heads=1, tokens=1, unit_bytes=group, tp=tp),
        )
    return ()


def _state(heads: int, head_bytes: float, tp: int) -> CacheLayout:
    return CacheLayout(heads=heads, tokens=1, unit_bytes=head_bytes, tp=tp, axes=("tp", "dp_replicate"))
