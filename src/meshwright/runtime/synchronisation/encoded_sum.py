"""Sums over a group whose summands travel encoded: Σ w·decode(encode(v + residual)), equal bits on all ranks.

``begin`` encodes this rank's values; ``legs`` exchanges them, at once or some steps later. With error feedback a rank
keeps what it did not send: residual ← v − decode(encode(v)). Buffers of ``low_rank`` and ``sketch`` are decoded only
when they are summed; there it keeps v minus the mean that all decode, so that Σ w·v = sum + Σ w·residual all the same.
A residual that is sent is taken out at once; what an exchange leaves is added when it ends, so exchanges may overlap.

Codecs with a momentum keep there what they do not send, and have no residual. A sum that is encoded again on its way
(``quantise``) loses a little more, which nobody keeps.
"""

from collections.abc import Sequence

import torch

from meshwright.plans.synchronisation.compression import Compression
from meshwright.program.synchronisation.encoded_bytes import codec_name, codec_ranks, stretch_bytes
from meshwright.program.synchronisation.exchange_legs import exchange_legs
from meshwright.program.synchronisation.stretch import Stretch
from meshwright.runtime.synchronisation.codecs import GATHERED, REDUCED, SCATTERED
from meshwright.runtime.synchronisation.codecs.codec import CodecSetting, States
from meshwright.runtime.synchronisation.draw_key import DrawKey
from meshwright.runtime.synchronisation.gathered_sum import GatheredSum
from meshwright.runtime.synchronisation.leg import Legs
from meshwright.runtime.synchronisation.pending_exchange import PendingExchange
from meshwright.runtime.synchronisation.reduced_sum import ReducedSum
from meshwright.runtime.synchronisation.scattered_sum import ScatteredSum

SHARED = "factor."
"""States that follow from sums, and are equal on all ranks."""


class EncodedSum:
    """One rank's side of the exchanges of some stretches, and the states that it keeps between them.

    ``seed`` gives states that start from random numbers, equal on all ranks.
    """

    def __init__(
        self,
        compression: Compression | None,
        stretches: Sequence[Stretch],
        ranks: int,
        dtype: torch.dtype,
        device: torch.device,
        seed: int = 0,
    ) -> None:
        self.compression = compression or Compression()
        self.setting = CodecSetting(self.compression, stretches, dtype, device, seed)
        self.ranks = ranks
        factors = codec_ranks(self.compression, stretches)
        planned = zip(stretches, factors, strict=True)
        self.planned_bytes = [stretch_bytes(self.compression, one, rank) for one, rank in planned]
        self.messages = self._message_sum()
        name = codec_name(self.compression)
        self.reduced = ReducedSum(REDUCED[name](self.setting) if name in REDUCED else None, self.setting)
        feeds_back = self.compression.error_feedback and not self.compression.momentum
        self.residual = self.setting.zeros() if feeds_back else {}

    def _message_sum(self) -> ScatteredSum | GatheredSum | None:
        name = codec_name(self.compression)
        if name in SCATTERED:
            return ScatteredSum(SCATTERED[name](self.setting), self.setting, self.ranks)
        return (
            GatheredSum(GATHERED[name](self.setting), self.setting, self.ranks) if name in GATHERED else None
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the stretches."""
        return tuple(one.name for one in self.setting.stretches)

    def states(self) -> States:
        """Return the live tensors that a checkpoint saves, by name; restore them in place."""
        codec = (self.messages or self.reduced).codec
        residual = {f"residual.{self.names[number]}": one for number, one in self.residual.items()}
        return (codec.states() if codec else {}) | residual

    def kept_by_late(self) -> States:
        """Return copies of what a rank keeps of its own gradients, which a step that drops them must not change."""
        return {name: one.clone() for name, one in self.states().items() if not name.startswith(SHARED)}

    def begin(
        self, values: Sequence[torch.Tensor], weights: Sequence[float], key: DrawKey, *, copy: bool = False
    ) -> PendingExchange:
        """Encode this rank's values, one flat tensor for each stretch.

        ``weights`` are those of all ranks. ``key.rank`` is this rank's index in the group. ``copy`` says that values
        change before the exchange ends.
        """
        pending = PendingExchange(key, tuple(weights))
        for number, given in enumerate(values):
            held = self._with_residual(number, given)
            if not len(held):
                continue
            if self.messages and number in self.setting.split.encoded:
                self._encode(self.messages, number, held, pending)
            else:
                held = held.clone() if copy and held is given else held
                self.reduced.begin(number, held, pending, keeps_values=number in self.residual)
        return pending

    def legs(self, pending: PendingExchange) -> Legs[list[torch.Tensor]]:
        """Exchange what has begun: yield legs, and return the sum for each stretch, flat."""
        planned = iter(exchange_legs(self.compression, self.setting.stretches, self.ranks))
        sums: dict[int, torch.Tensor] = {}
        if self.messages and pending.messages:
            sums |= yield from self.messages.legs(pending, planned)
        if pending.buffers:
            sums |= yield from self.reduced.legs(pending, planned)
        for number in pending.values.keys() & self.residual.keys():
            mean = sums[number] / sum(pending.weights)
            self.residual[number].add_(pending.values[number] - mean)
        numbers = range(len(self.setting.stretches))
        return [sums[number] if number in sums else self.setting.zeros_of(number) for number in numbers]

    def _with_residual(self, number: int, values: torch.Tensor) -> torch.Tensor:
        real = values.to(self.setting.real)
        if number in self.residual:
            real = real + self.residual[number]
            self.residual[number].zero_()
        return real

    def _encode(
        self,
        messages: ScatteredSum | GatheredSum,
        number: int,
        values: torch.Tensor,
        pending: PendingExchange,
    ) -> None:
        message = messages.encode(number, values, pending.key)
        assert message.counted_bytes == self.planned_bytes[number], (
            f"{self.names[number]}: a message of {message.counted_bytes} bytes, {self.planned_bytes[number]} planned"
        )
        pending.messages[number] = message.payload
        if number in self.residual:
            sent = messages.decode(number, message.payload, pending.key)
            self.residual[number].add_(values - sent)
