"""The optimizer of a reference in one process: PyTorch's own where it has the rule, else the rule written out.

Lion takes the sign of an average. Where the average is zero but for rounding (as for biases of keys, which softmax
cancels) the sign is any: ``slack`` then says by how much a parameter may differ.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import cast

import torch
import torch._dynamo  # the first optimizer imports it: once, before a fork

from meshwright.model.named_tensors import is_matrix
from meshwright.program.program import Program
from meshwright.runtime.state.step_options import StepOptions
from meshwright.runtime.state.update_rules.update_rule import StepValues
from meshwright.runtime.verify.recorded_states import PARAMETER
from meshwright.runtime.verify.reference_rules import (
    hidden_matrices,
    lion,
    lion_average,
    muon_change,
    muon_momentum,
    qh_adamw,
)
from meshwright.workload.optimizer_choice import Optimizer
from meshwright.workload.optimizers.optimizer_kind import FIRST, SECOND, Options

Tensors = Mapping[str, torch.Tensor]
LIBRARY_KEYS = {"exp_avg": FIRST, "momentum_buffer": FIRST, "exp_avg_sq": SECOND}
"""PyTorch's names of moments."""
UNDECIDED = 1e-10
"""An average this much smaller than the largest has no certain sign."""


@dataclass
class ReferenceOptimizer:
    """Steps on whole parameters whose gradients are set. ``slack``: by how much a parameter may differ, 0 if absent."""

    program: Program
    options: StepOptions
    trained: Tensors
    slack: dict[str, torch.Tensor] = field(default_factory=dict)
    steps: int = 0

    def __post_init__(self) -> None:
        self._library: torch.optim.Optimizer | None = None
        self._first: dict[str, dict[str, torch.Tensor]] = {}
        self._moments: dict[str, dict[str, torch.Tensor]] = {}
        optimizer = self.program.stack.optimizer
        matrices = hidden_matrices(self.program)
        others = {name: p for name, p in self.trained.items() if name not in matrices}
        self._rules: list[Callable[[], None]] = [self._rule(optimizer.others, others)]
        if matrices:
            options = self.options.for_optimizer(optimizer, self.program.stack.muon_scale)
            first = {name: torch.zeros_like(self.trained[name]) for name in matrices}
            self._first |= dict.fromkeys(matrices, first)
            self._rules.append(lambda: self._muon(first, options))

    @torch.no_grad()
    def step(self) -> None:
        """Take a step."""
        self.steps += 1
        for rule in self._rules:
            rule()

    def _rule(self, optimizer: Optimizer, tensors: Tensors) -> Callable[[], None]:
        options = self.options.for_optimizer(optimizer, "")
        if optimizer.name == "lion":
            first = {name: torch.zeros_like(tensor) for name, tensor in tensors.items()}
            self._first |= dict.fromkeys(tensors, first)
            return lambda: self._lion(tensors, first, options)
        if optimizer.name == "qh-adamw":
            moments = {
                name: {key: torch.zeros_like(p) for key in (FIRST, SECOND)} for name, p in tensors.items()
            }
            self._moments = moments
            return lambda: self._qh_adamw(tensors, moments, options)
        decays = ((True, options["weight_decay"]), (False, 0.0))
        groups = [
            {
                "params": [p for name, p in tensors.items() if is_matrix(name, p.shape) == these],
                "weight_decay": rate,
            }
            for these, rate in decays
        ]
        if optimizer.name == "sgd":
            momentum, nesterov = cast(float, options["momentum"]), bool(options["nesterov"])
            self._library = torch.optim.SGD(groups, lr=self.options.lr, momentum=momentum, nesterov=nesterov)
            return self._library.step
        betas, epsilon = cast(tuple[float, float], options["betas"]), cast(float, options["epsilon"])
        self._library = torch.optim.AdamW(groups, lr=self.options.lr, betas=betas, eps=epsilon)
        return self._library.step

    def moment(self, name: str, key: str) -> torch.Tensor:
        """Return a moment of a parameter behind a step; it may be changed."""
        if name in self._moments:
            return self._moments[name][key]
        if name in self._first:
            assert key == FIRST, key
            return self._first[name][name]
        assert self._library is not None
        state = self._library.state[self.trained[name]]
        return next(value for stored, value in state.items() if LIBRARY_KEYS.get(stored) == key)

    def _qh_adamw(
        self, tensors: Tensors, moments: dict[str, dict[str, torch.Tensor]], options: Options
    ) -> None:
        for name, tensor in tensors.items():
            rate = cast(float, options["weight_decay"]) * is_matrix(name, tensor.shape)
            values = StepValues(self.steps, self.options.lr, rate, options)
            moments[name] = qh_adamw({PARAMETER: tensor, **moments[name]}, _gradient(tensor), values)
            tensor.copy_(moments[name].pop(PARAMETER))

    def _lion(self, tensors: Tensors, first: dict[str, torch.Tensor], options: Options) -> None:
        gradients = {name: _gradient(tensor) for name, tensor in tensors.items()}
        averages = {name: lion_average(first[name], gradients[name], options).abs() for name in tensors}
        least = UNDECIDED * max(float(average.max()) for average in averages.values())
        for name, tensor in tensors.items():
            undecided = averages[name] < least
            if undecided.any():
                slack = self.slack.setdefault(name, torch.zeros_like(tensor))
                slack += 2 * self.options.lr * undecided.to(tensor)
            rate = cast(float, options["weight_decay"]) * is_matrix(name, tensor.shape)
            state = {PARAMETER: tensor, FIRST: first[name]}
            new = lion(state, gradients[name], StepValues(self.steps, self.options.lr, rate, options))
            tensor.copy_(new[PARAMETER])
            first[name] = new[FIRST]

    def _muon(self, first: dict[str, torch.Tensor], options: Options) -> None:
        kept = 1 - self.options.lr * cast(float, options["weight_decay"])
        for name, matrix in hidden_matrices(self.program).items():
            tensor = self.trained[name]
            first[name], direction = muon_momentum(first[name], _gradient(tensor), options)
            change = muon_change(direction, matrix, self.program.parts.only.shape, options)
            tensor.mul_(kept).sub_(change, alpha=self.options.lr)


def _gradient(tensor: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
