"""Parts of attention that kernels of encoders share: the saved heads, their views, and the scale of scores.

No cp cuts their sequences, so they have no exchanges.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from meshwright.model.operators.operator_types import Attention
from meshwright.program.pass_items import Collective
from meshwright.runtime.executor.operator_call import OperatorCall
from meshwright.runtime.kernels.attention.rotated_heads import by_heads
from meshwright.runtime.kernels.attention.scaled_dot_product import Triple
from meshwright.runtime.kernels.attention.softmax_attention import PARTS
from meshwright.runtime.kernels.kernel import Exchange, Setting


@dataclass(frozen=True)
class UnshardedAttention:
    """Attention over whole sequences of one rank's heads."""

    op: Attention
    setting: Setting

    def weight_gradient(self, visit: OperatorCall) -> None:
        """Do nothing: there are no weights."""

    def exchange(self, item: Collective, x: torch.Tensor, visit: OperatorCall) -> Exchange:
        """Raise AssertionError: whole sequences need no exchange."""
        raise AssertionError(item)
        yield

    @property
    def scale(self) -> float:
        """The factor of scores."""
        return self.setting.numerics.attention_scales[self.setting.decoder_layer]

    def save(self, parts: Sequence[torch.Tensor], visit: OperatorCall) -> None:
        """Save queries, keys and values."""
        visit.kept |= dict(zip(PARTS, parts, strict=True))

    def saved(self, visit: OperatorCall) -> list[torch.Tensor]:
        """Return the saved queries, keys and values."""
        return [visit.kept[name] for name in PARTS]

    def take_saved(self, visit: OperatorCall) -> list[torch.Tensor]:
        """Return the saved queries, keys and values, and let them go."""
        return [visit.kept.pop(name) for name in PARTS]

    def heads(self, parts: Sequence[torch.Tensor]) -> Triple:
        """Return views of queries, keys and values by heads: (batch, heads, sequence, width)."""
        q, k, v = map(by_heads, parts, (self.op.qk_dim, self.op.qk_dim, self.op.v_dim))
        return q, k, v
