"""An exchange that has begun: what this rank sends, and all that its end needs; a checkpoint saves it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from meshwright.runtime.synchronisation.draw_key import DrawKey

KEY, WEIGHTS = "key", "weights"


@dataclass(frozen=True, slots=True)
class PendingExchange:
    """The key and the weights of all ranks; by the number of a stretch its message, first buffer, and values.

    ``messages``: bytes of codecs whose messages travel. ``buffers``: floats of the first all-reduce, not yet weighted.
    ``values``: where they are needed behind it.
    """

    key: DrawKey
    weights: tuple[float, ...]
    messages: dict[int, torch.Tensor] = field(default_factory=dict)
    buffers: dict[int, torch.Tensor] = field(default_factory=dict)
    values: dict[int, torch.Tensor] = field(default_factory=dict)

    def tensors(self, names: Sequence[str]) -> dict[str, torch.Tensor]:
        """Return everything as named tensors; ``names`` are those of the stretches."""
        parts = {"message": self.messages, "buffer": self.buffers, "values": self.values}
        held = {f"{part}.{names[n]}": one for part, found in parts.items() for n, one in found.items()}
        return held | {
            KEY: torch.tensor(self.key.numbers(), dtype=torch.int64),
            WEIGHTS: torch.tensor(self.weights, dtype=torch.float64),
        }

    @classmethod
    def of_tensors(cls, tensors: Mapping[str, torch.Tensor], names: Sequence[str]) -> "PendingExchange":
        """Return the exchange that ``tensors`` gave."""

        def held(part: str) -> dict[int, torch.Tensor]:
            return {
                n: tensors[f"{part}.{name}"] for n, name in enumerate(names) if f"{part}.{name}" in tensors
            }

        key = DrawKey.of_numbers(tensors[KEY].tolist())
        weights = tuple(tensors[WEIGHTS].tolist())
        return cls(key, weights, held("message"), held("buffer"), held("values"))
