"""Linear attention of the heads of one rank, and the gated norm of all heads behind it.

Queries, keys, values and the gate are parts of one buffer that the projection wrote. It is kept as it is, for the
activation of the first three costs less than their place; the gate goes on to the norm. With cp the states that enter a
rank's pieces are made of those of all pieces, and kept. Everything is computed in single precision at least.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import torch

from meshwright.model.operators import GatedNorm, LinearAttention
from meshwright.program.items import Collective
from meshwright.program.shape import STATISTIC_BYTES
from meshwright.runtime.kernels.activation import ACTIVATIONS
from meshwright.runtime.kernels.attention_core import Triple
from meshwright.runtime.kernels.kernel import Exchange, Setting, Value
from meshwright.runtime.kernels.linear_core import (
    Decay,
    entering_gradient,
    linear_attention,
    linear_attention_gradients,
    made_state,
)
from meshwright.runtime.kernels.linear_pieces import Pieces
from meshwright.runtime.kernels.turned_heads import by_heads
from meshwright.runtime.visit import Visit


@dataclass(frozen=True)
class LinearAttentionKernel:
    """(sequence, batch, 4 · width) → (output, gate), (sequence, batch, width) each."""

    op: LinearAttention
    setting: Setting

    @cached_property
    def width(self) -> int:
        """Of queries, keys, values or gate on this rank."""
        return self.op.width // self.setting.tp

    @cached_property
    def pieces(self) -> Pieces:
        """What this rank has of sequences that are not packed, and how its heads decay."""
        numerics, heads = self.setting.numerics, self.op.heads // self.setting.tp
        assert numerics.decay is not None
        rates = numerics.decay.rates(self.setting.decoder_layer)[self.setting.tp_rank * heads :][:heads]
        like = {"dtype": self.setting.precision.statistic, "device": self.setting.communicator.device}
        return Pieces(self.setting, Decay(torch.tensor(rates, **like), self.op.block))  # type: ignore[arg-type]

    def forward(self, x: Value, visit: Visit) -> Value:
        """What the projection made, with cp beside the states that enter."""
        fused, entered = x if isinstance(x, tuple) else (x, None)
        if visit.keep.inputs:
            visit.kept["input"] = fused
        if visit.keep.inner and entered is not None:
            visit.kept["states"] = entered
        q, k, v = self._heads(fused)
        out, pieces = torch.empty_like(v), self._pieces(visit)
        states = pieces.no_states(v) if entered is None else entered
        for run in pieces.runs(len(q)):
            state = states[run.piece][run.sequences] * run.enters
            place = run.place
            out[place] = linear_attention(q[place], k[place], v[place], pieces.decay, state)
        return out.permute(2, 0, 1, 3).flatten(2).to(fused), fused[..., -self.width :]

    def again(self, visit: Visit) -> Value:
        """On the kept input."""
        return self.forward(visit.kept["input"], visit)

    def restore(self, x: torch.Tensor, visit: Visit) -> None:
        """Keep it now."""
        visit.kept["input"] = x

    def kept_value(self, visit: Visit) -> torch.Tensor:
        """What a row begins with that runs it again with its exchange."""
        return visit.kept["input"]

    def input_gradient(self, g: Value, visit: Visit) -> torch.Tensor:
        """Of queries, keys, values and gate; with cp ``g`` has the gradients of what the pieces leave, too."""
        of_out, of_gate, *of_left = g
        fused, entered = visit.kept.pop("input"), visit.kept.pop("states", None)
        heads, pieces = self._heads(fused), self._pieces(visit)
        wide = by_heads(of_out.to(heads[0]), self.op.head_dim)
        found: Triple = (torch.empty_like(wide), torch.empty_like(wide), torch.empty_like(wide))
        none = pieces.no_states(wide)
        states, behind = none if entered is None else entered, of_left[0] if of_left else none
        for run in pieces.runs(len(wide)):
            q, k, v = (part[run.place] for part in heads)
            state = states[run.piece][run.sequences] * run.enters
            left = behind[run.piece][run.sequences] * run.leaves
            made = linear_attention_gradients(wide[run.place], (q, k, v), pieces.decay, state, left)
            for total, part in zip(found, made, strict=True):
                total[run.place] = part
        gradient = torch.empty_like(fused)
        *of_parts, gate = gradient.split(self.width, -1)
        gate.copy_(of_gate)
        _, slope = ACTIVATIONS[self.setting.numerics.activation]
        for to, part, x in zip(of_parts, found, fused.split(self.width, -1), strict=False):
            to.copy_(slope(part.permute(2, 0, 1, 3).flatten(2).to(x), x.contiguous()))
        return gradient

    def weight_gradient(self, visit: Visit) -> None:
        """There are no weights."""

    def exchange(self, item: Collective, x: Value, visit: Visit) -> Exchange:
        """Gather the states of all pieces, or backward the gradients of what entered them."""
        pieces, backward = self._pieces(visit), item.phase == "I"
        q, k, v = self._heads(visit.kept["input"] if backward else x)
        g = by_heads(x[0].to(q), self.op.head_dim) if backward else q
        states = pieces.no_states(q)
        for run in pieces.runs(len(q)):
            if backward and run.enters:
                states[run.piece][run.sequences] = entering_gradient(q[run.place], g[run.place], pieces.decay)
            elif not backward and run.leaves:
                states[run.piece][run.sequences] = made_state(k[run.place], v[run.place], pieces.decay)
        ranks = len(self.setting.communicator.ranks_of(item.axes))
        gathered = states.new_empty((ranks * len(states), *states.shape[1:]))
        yield self.setting.communicator.start(item, states, STATISTIC_BYTES, out=gathered)
        return (*x, pieces.left(gathered)) if backward else (x, pieces.entered(gathered))

    def _pieces(self, visit: Visit) -> Pieces:
        packing = visit.batch.packing
        return self.pieces if packing is None else replace(self.pieces, packing=packing)

    def _heads(self, fused: torch.Tensor) -> Triple:
        """Queries, keys and values after their activation, by heads."""
        function, _ = ACTIVATIONS[self.setting.numerics.activation]
        parts = fused[..., : 3 * self.width].split(self.width, -1)
        wide = self.setting.precision.statistic
        q, k, v = (by_heads(function(part).to(wide), self.op.head_dim) for part in parts)
        return q, k, v


@dataclass(frozen=True)
class GatedNormKernel:
    """(x, gate) → σ(gate)·x·w / √(mean x² + ε), the mean over the heads of all tp ranks.

    With n = x/√(mean x² + ε) and h = g·σ(gate)·w its gradient is (h − n·mean(h·n)) / √(mean x² + ε).
    """

    op: GatedNorm
    setting: Setting

    @cached_property
    def name(self) -> str:
        """The full name of w."""
        (weight,) = self.op.parameters
        return self.setting.named(weight)

    def forward(self, x: Value, visit: Visit) -> torch.Tensor:
        """(sequence, batch, width / tp) of both, with tp beside the sums of squares of whole rows."""
        value, gate, *summed = x
        squares = summed[0] if summed else self._squares(value)
        if visit.keep.inputs:
            visit.kept |= {"input": value, "gate": gate}
        if visit.keep.inner:
            visit.kept["squares"] = squares
        normalised = value.to(squares) * self._scale(squares)
        return torch.sigmoid(gate) * (normalised.to(value) * visit.unit(self.name).view(self.name))

    def again(self, visit: Visit) -> torch.Tensor:
        """No row begins with it."""
        raise AssertionError(self.op.name)

    def restore(self, x: Value, visit: Visit) -> None:
        """Keep them now."""
        visit.kept |= dict(zip(("input", "gate"), x, strict=False))

    def input_gradient(self, g: Value, visit: Visit) -> Value:
        """Of both; that of w is added at once. With tp ``g`` has whole rows' products of gradient and value beside."""
        g, *summed = g if isinstance(g, tuple) else (g,)
        through, normalised = self._parts(g, visit)
        products = summed[0] if summed else self._products(g, visit)
        squares, gate = visit.kept.pop("squares"), visit.kept.pop("gate")
        value, weight = visit.kept.pop("input"), visit.unit(self.name).view(self.name)
        open_, wide_g = torch.sigmoid(gate.to(squares)), g.to(squares)
        visit.unit(self.name).gradient_of(self.name).add_((wide_g * open_ * normalised).flatten(0, 1).sum(0))
        of_gate = wide_g * normalised * weight * open_ * (1 - open_)
        mean = (products / self.op.width)[..., None]
        return ((through - normalised * mean) * self._scale(squares)).to(value), of_gate.to(value)

    def weight_gradient(self, visit: Visit) -> None:
        """Done with the input's."""

    def exchange(self, item: Collective, x: Value, visit: Visit) -> Exchange:
        """Sum up over tp what a row's mean is made of."""
        sums = self._products(x, visit) if item.phase == "I" else self._squares(x[0])
        yield self.setting.communicator.start(item, sums, STATISTIC_BYTES)
        return (x, sums) if item.phase == "I" else (*x, sums)

    def _squares(self, value: torch.Tensor) -> torch.Tensor:
        return value.to(self.setting.precision.statistic).square().sum(-1)

    def _products(self, g: torch.Tensor, visit: Visit) -> torch.Tensor:
        through, normalised = self._parts(g, visit)
        return (through * normalised).sum(-1)

    def _parts(self, g: torch.Tensor, visit: Visit) -> tuple[torch.Tensor, torch.Tensor]:
        """h and n of this rank's heads."""
        squares, weight = visit.kept["squares"], visit.unit(self.name).view(self.name)
        through = g.to(squares) * torch.sigmoid(visit.kept["gate"].to(squares)) * weight
        return through, visit.kept["input"].to(squares) * self._scale(squares)

    def _scale(self, squares: torch.Tensor) -> torch.Tensor:
        epsilon = self.setting.numerics.linear_norm_epsilon
        return squares.div(self.op.width).add_(epsilon).rsqrt_()[..., None]
