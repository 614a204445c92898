"""Linear attention of the heads of one rank, and the gated norm of all heads after it.

Queries, keys, values and the gate are parts of one buffer that the projection wrote. It is saved unchanged, because
recomputing the activation of the first three costs less than saving its result; the gate goes on to the norm. With cp
the states that enter a rank's pieces are computed from those of all pieces, and saved. Computation is in single
precision at least.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import torch

from meshwright.model.operators.operator_types import GatedNorm, LinearAttention
from meshwright.program.local_shape import STATISTIC_BYTES
from meshwright.program.pass_items import Collective
from meshwright.runtime.executor.operator_call import OperatorCall
from meshwright.runtime.kernels.activation import ACTIVATIONS
from meshwright.runtime.kernels.attention.rotated_heads import by_heads
from meshwright.runtime.kernels.attention.scaled_dot_product import Triple
from meshwright.runtime.kernels.kernel import Exchange, Setting, Value
from meshwright.runtime.kernels.linear_attention.block_recurrence import (
    Decay,
    entering_gradient,
    linear_attention,
    linear_attention_gradients,
    state_after,
)
from meshwright.runtime.kernels.linear_attention.state_passing import RankSequencePieces


@dataclass(frozen=True)
class LinearAttentionKernel:
    """Linear attention: (sequence, batch, 4 · width) → (output, gate), (sequence, batch, width) each."""

    op: LinearAttention
    setting: Setting

    @cached_property
    def width(self) -> int:
        """Width of queries, keys, values or gate on this rank."""
        return self.op.width // self.setting.tp

    @cached_property
    def pieces(self) -> RankSequencePieces:
        """Pieces of this rank's sequences, without packing, and the decay of its heads."""
        numerics, heads = self.setting.numerics, self.op.heads // self.setting.tp
        assert numerics.decay is not None
        rates = numerics.decay.rates(self.setting.decoder_layer)[self.setting.tp_rank * heads :][:heads]
        like = {"dtype": self.setting.precision.statistic, "device": self.setting.communicator.device}
        return RankSequencePieces(self.setting, Decay(torch.tensor(rates, **like), self.op.block))  # type: ignore[arg-type]

    def forward(self, x: Value, visit: OperatorCall) -> Value:
        """Return output and gate; with cp, ``x`` is the projection's result and the entering states."""
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

    def again(self, visit: OperatorCall) -> Value:
        """Recompute the result from the saved input."""
        return self.forward(visit.kept["input"], visit)

    def restore(self, x: torch.Tensor, visit: OperatorCall) -> None:
        """Save the recomputed input."""
        visit.kept["input"] = x

    def kept_value(self, visit: OperatorCall) -> torch.Tensor:
        """Return the saved input, from which a recomputed segment repeats the exchange."""
        return visit.kept["input"]

    def input_gradient(self, g: Value, visit: OperatorCall) -> torch.Tensor:
        """Return the gradient of queries, keys, values and gate.

        With cp, ``g`` includes the gradients of the states that leave the pieces.
        """
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

    def weight_gradient(self, visit: OperatorCall) -> None:
        """Do nothing: there are no weights."""

    def exchange(self, item: Collective, x: Value, visit: OperatorCall) -> Exchange:
        """Gather the states of all pieces, or in the backward pass the gradients of their entering states."""
        pieces, backward = self._pieces(visit), item.phase == "I"
        q, k, v = self._heads(visit.kept["input"] if backward else x)
        g = by_heads(x[0].to(q), self.op.head_dim) if backward else q
        states = pieces.no_states(q)
        for run in pieces.runs(len(q)):
            if backward and run.enters:
                states[run.piece][run.sequences] = entering_gradient(q[run.place], g[run.place], pieces.decay)
            elif not backward and run.leaves:
                states[run.piece][run.sequences] = state_after(k[run.place], v[run.place], pieces.decay)
        ranks = len(self.setting.communicator.ranks_of(item.axes))
        gathered = states.new_empty((ranks * len(states), *states.shape[1:]))
        yield self.setting.communicator.start(item, states, STATISTIC_BYTES, out=gathered)
        return (*x, pieces.left(gathered)) if backward else (x, pieces.entered(gathered))

    def _pieces(self, visit: OperatorCall) -> RankSequencePieces:
        packing = visit.batch.packing
        return self.pieces if packing is None else replace(self.pieces, packing=packing)

    def _heads(self, fused: torch.Tensor) -> Triple:
        """Return activated queries, keys and values by heads."""
        function, _ = ACTIVATIONS[self.setting.numerics.activation]
        parts = fused[..., : 3 * self.width].split(self.width, -1)
        wide = self.setting.precision.statistic
        q, k, v = (by_heads(function(part).to(wide), self.op.head_dim) for part in parts)
        return q, k, v


@dataclass(frozen=True)
class GatedNormKernel:
    """Gated RMSNorm: (x, gate) → σ(gate)·x·w / √(mean x² + ε), with the mean over the heads of all tp ranks.

    With n = x/√(mean x² + ε) and h = g·σ(gate)·w its gradient is (h − n·mean(h·n)) / √(mean x² + ε).
    """

    op: GatedNorm
    setting: Setting

    @cached_property
    def name(self) -> str:
        """The full name of w."""
        (weight,) = self.op.parameters
        return self.setting.named(weight)

    @property
    def epsilon(self) -> float:
        """ε of the statistics."""
        return self.setting.numerics.linear_norm_epsilon

    def forward(self, x: Value, visit: OperatorCall) -> torch.Tensor:
        """Return the gated norm of (sequence, batch, width / tp); with tp, ``x`` includes the rows' sums of squares."""
        value, gate, *summed = x
        squares = summed[0] if summed else self._squares(value)
        if visit.keep.inputs:
            visit.kept |= {"input": value, "gate": gate}
        if visit.keep.inner:
            visit.kept["squares"] = squares
        normalised = value.to(squares) * self._scale(squares)
        return torch.sigmoid(gate) * (normalised.to(value) * visit.unit(self.name).view(self.name))

    def again(self, visit: OperatorCall) -> torch.Tensor:
        """Raise AssertionError: no recomputed segment begins here."""
        raise AssertionError(self.op.name)

    def restore(self, x: Value, visit: OperatorCall) -> None:
        """Save the recomputed value and gate."""
        visit.kept |= dict(zip(("input", "gate"), x, strict=False))

    def input_gradient(self, g: Value, visit: OperatorCall) -> Value:
        """Return the gradients of value and gate, and add that of w.

        With tp, ``g`` includes the rows' sums of gradient · value.
        """
        g, *summed = g if isinstance(g, tuple) else (g,)
        through, normalised = self._parts(g, visit)
        products = summed[0] if summed else self._products(g, visit)
        squares, gate = visit.kept.pop("squares"), visit.kept.pop("gate")
        value, weight = visit.kept.pop("input"), visit.unit(self.name).view(self.name)
        open_, wide_g = torch.sigmoid(gate.to(squares)), g.to(squares)
        if not self.op.frozen:
            with visit.unit(self.name).gradients.adding(self.name) as total:
                total.add_((wide_g * open_ * normalised).flatten(0, 1).sum(0))
        of_gate = wide_g * normalised * weight * open_ * (1 - open_)
        mean = (products / self.op.width)[..., None]
        return ((through - normalised * mean) * self._scale(squares)).to(value), of_gate.to(value)

    def weight_gradient(self, visit: OperatorCall) -> None:
        """Do nothing: w's gradient is added with the input's."""

    def exchange(self, item: Collective, x: Value, visit: OperatorCall) -> Exchange:
        """Sum the terms of each row's mean over tp."""
        sums = self._products(x, visit) if item.phase == "I" else self._squares(x[0])
        yield self.setting.communicator.start(item, sums, STATISTIC_BYTES)
        return (x, sums) if item.phase == "I" else (*x, sums)

    def _squares(self, value: torch.Tensor) -> torch.Tensor:
        return value.to(self.setting.precision.statistic).square().sum(-1)

    def _products(self, g: torch.Tensor, visit: OperatorCall) -> torch.Tensor:
        through, normalised = self._parts(g, visit)
        return (through * normalised).sum(-1)

    def _parts(self, g: torch.Tensor, visit: OperatorCall) -> tuple[torch.Tensor, torch.Tensor]:
        """Return h and n of this rank's heads."""
        squares, weight = visit.kept["squares"], visit.unit(self.name).view(self.name)
        through = g.to(squares) * torch.sigmoid(visit.kept["gate"].to(squares)) * weight
        return through, visit.kept["input"].to(squares) * self._scale(squares)

    def _scale(self, squares: torch.Tensor) -> torch.Tensor:
        return squares.div(self.op.width).add_(self.epsilon).rsqrt_()[..., None]
