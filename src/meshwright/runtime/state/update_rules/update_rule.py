"""The interface of update rules, which update parameters element by element in flat buffers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from meshwright.workload.optimizers.optimizer_kind import Options

Parts = Sequence[torch.Tensor]


@dataclass(frozen=True, slots=True)
class StepValues:
    """Numbers of one step: its number from 1, its learning rate, its weight decay, and the optimizer's options.

    ``weight_decay`` is 0 for vectors, whatever the options say.
    """

    number: int
    lr: float
    weight_decay: float
    options: Options


class UpdateRule(Protocol):
    """A step of an optimizer on parts of parameters, in place.

    ``moments`` has the parts of each moment by its key of ``dtypes``; which ones there are is declared by the
    optimizer's entry in ``workload/optimizers``.
    """

    def __call__(
        self, parameters: Parts, gradients: Parts, moments: Mapping[str, Parts], step: StepValues
    ) -> None:
        """Update parameters and moments; gradients stay as they are."""
