"""Deterministic random parameters, for tests and for proofs that need no trained model.

Matrices are normal with deviation 0.02 (GPT-2's initialisation), norm weights are their neutral value plus such noise,
biases the noise alone: nothing is zero or one exactly, so that no gradient is trivial. A tensor depends on the seed
and its name only, so that one device can draw its own; it is drawn in float64 on the CPU and rounded.
"""

from collections.abc import Iterator, Mapping
from hashlib import sha256

import torch
from torch import Tensor

from meshwright.model.graph import ModelGraph
from meshwright.model.operators import Parameter
from meshwright.model.running import named_parameters, numerics_to_run

DEVIATION = 0.02


class RandomTensors(Mapping[str, Tensor]):
    """Every tensor of a model by its name, drawn when it is asked for: a device needs room for its own alone.

    Raises UnsupportedError for a model that cannot be run.
    """

    def __init__(
        self, model: ModelGraph, seed: int, dtype: torch.dtype = torch.float64, deviation: float = DEVIATION
    ) -> None:
        self._neutral = 1 - numerics_to_run(model.architecture).norm_offset
        self._parameters = named_parameters(model)
        self._seed, self._dtype, self._deviation = seed, dtype, deviation

    def __getitem__(self, name: str) -> Tensor:
        parameter = self._parameters[name]
        noise = _noise(name, parameter, self._seed) * self._deviation
        return (noise + (self._neutral if _is_norm(parameter) else 0)).to(self._dtype)

    def __iter__(self) -> Iterator[str]:
        return iter(self._parameters)

    def __len__(self) -> int:
        return len(self._parameters)


def random_tensors(
    model: ModelGraph, seed: int, dtype: torch.dtype = torch.float64, deviation: float = DEVIATION
) -> dict[str, Tensor]:
    """Every tensor of a model by its name. Raises UnsupportedError for a model that cannot be run."""
    return dict(RandomTensors(model, seed, dtype, deviation))


def _noise(name: str, parameter: Parameter, seed: int) -> Tensor:
    digest = sha256(f"{seed} {name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
    return torch.randn(parameter.shape, generator=generator, dtype=torch.float64)


def _is_norm(parameter: Parameter) -> bool:
    """Norms are the only operators whose weight is a vector."""
    return len(parameter.shape) == 1 and parameter.name.endswith(".weight")
