"""Deterministic random parameters, for tests and for proofs that need no trained model.

Matrices are normal with deviation 0.02 (GPT-2's initialisation), norm weights are their neutral value plus such noise,
biases and corrections the noise alone: nothing is exactly zero or one, so that no gradient is trivial. A tensor depends
on the seed and its name only, so that each device can draw its own; it is drawn in float64 on the CPU and rounded.
"""

from collections.abc import Iterator, Mapping
from hashlib import sha256

import torch
from torch import Tensor

from meshwright.model.graph import ModelGraph
from meshwright.model.named_tensors import runnable_numerics, stored_shapes

DEVIATION = 0.02


class RandomTensors(Mapping[str, Tensor]):
    """Every tensor of a model by name, including corrections, drawn on access: a device needs memory only for its own.

    Raises UnsupportedError for a model that cannot be run.
    """

    def __init__(
        self, model: ModelGraph, seed: int, dtype: torch.dtype = torch.float64, deviation: float = DEVIATION
    ) -> None:
        self._neutral = 1 - runnable_numerics(model.architecture).norm_offset
        self._shapes = stored_shapes(model)
        self._seed, self._dtype, self._deviation = seed, dtype, deviation

    def __getitem__(self, name: str) -> Tensor:
        shape = self._shapes[name]
        noise = _noise(name, shape, self._seed) * self._deviation
        return (noise + (self._neutral if _is_norm(name, shape) else 0)).to(self._dtype)

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)


def random_tensors(
    model: ModelGraph, seed: int, dtype: torch.dtype = torch.float64, deviation: float = DEVIATION
) -> dict[str, Tensor]:
    """Return every tensor of a model by name. Raises UnsupportedError for a model that cannot be run."""
    return dict(RandomTensors(model, seed, dtype, deviation))


def _noise(name: str, shape: tuple[int, ...], seed: int) -> Tensor:
    return torch.randn(shape, generator=generator_of(name, seed), dtype=torch.float64)


def generator_of(name: str, seed: int) -> torch.Generator:
    """Return the generator that a tensor is drawn from."""
    digest = sha256(f"{seed} {name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))


def _is_norm(name: str, shape: tuple[int, ...]) -> bool:
    """Return whether a tensor is a norm's weight: only norms have a vector as weight."""
    return len(shape) == 1 and name.endswith(".weight")
