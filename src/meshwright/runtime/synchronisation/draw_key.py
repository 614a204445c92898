"""Random numbers of one exchange, which follow from the run's seed and the exchange alone."""

from dataclasses import dataclass, fields, replace
from hashlib import blake2b

import torch

SHARED = -1
"""The rank in the key of draws that are equal on all ranks."""
SEED_BITS = 63


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawKey:
    """Seed, step, entry and fragment of an exchange, and the rank in its group whose values are encoded.

    ``exchange`` counts the exchanges of this fragment from 0; codecs that send places in turn go by it. ``place`` may
    tell apart ranks that the exchange does not join, such as the cuts of one tensor.
    """

    seed: int = 0
    step: int = 0
    entry: int = 0
    fragment: int = 0
    rank: int = 0
    exchange: int = 0
    place: int = 0

    def of_rank(self, rank: int) -> "DrawKey":
        """Return the key of another rank of the group."""
        return replace(self, rank=rank)

    def shared(self) -> "DrawKey":
        """Return the key of draws that are equal on all ranks."""
        return replace(self, rank=SHARED)

    def generator(self, device: torch.device, *purpose: object) -> torch.Generator:
        """Return a generator for one purpose, for example a stretch."""
        return seeded(device, *self.numbers(), *purpose)

    def numbers(self) -> tuple[int, ...]:
        """Return the fields in order."""
        return tuple(getattr(self, one.name) for one in fields(self))

    @classmethod
    def of_numbers(cls, numbers: list[int]) -> "DrawKey":
        """Return the key with these fields in order."""
        return cls(**dict(zip((one.name for one in fields(cls)), numbers, strict=True)))


def seeded(device: torch.device, *parts: object) -> torch.Generator:
    """Return a generator whose seed is a hash of the parts."""
    digest = blake2b("/".join(map(str, parts)).encode(), digest_size=8).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest) >> (64 - SEED_BITS))
