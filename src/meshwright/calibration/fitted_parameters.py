"""Fitted parameters: their priors, and how far the data may move them.

Every parameter is positive and fitted in its logarithm with a normal prior: ``priors.csv`` has its centre, its width
and its origin: kernels and links that were measured separately, published figures, or counting. Three of
them already use some published runs, and their origins say so: messages inside a node (profiled with Zero Bubble's
runs), sharded communication (earlier fits), host time (a bound seen in runs). Widths are narrow
if something was measured and wide if only whole runs depend on the constant (host time, element-wise
factors). A parameter belongs to everything, to one kernel family (``a100:…``) or to one stack (``*/…`` in the table:
the same prior for all stacks).
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import log
from typing import NamedTuple

from meshwright.calibration.observations import Target, kernel_family
from meshwright.cost.constants import constants, kernels
from meshwright.plans.choices.sharding import SHARDINGS
from meshwright.program.model_states.stack_zero_semantics import effective_sharding

SHARDING_ONLY = "fsdp_communication_factor"
"""A number of a stack that only runs with sharded parameters depend on."""
ANY_STACK = "*"


class Prior(NamedTuple):
    """Centre of a prior, its width in the logarithm, and its origin."""

    value: float
    width: float
    origin: str = ""


@cache
def priors() -> dict[str, Prior]:
    """Return the table of priors."""
    with (files("meshwright.calibration") / "priors.csv").open(encoding="utf-8") as lines:
        return {
            r["name"]: Prior(float(r["value"]), float(r["width"]), r["origin"]) for r in csv.DictReader(lines)
        }


@dataclass(frozen=True, slots=True)
class Parameter:
    """A fitted constant: its present value, where a fit begins, and its prior."""

    name: str
    value: float
    prior: Prior

    @property
    def start(self) -> float:
        """Logarithm of the present value."""
        return log(self.value)

    @property
    def centre(self) -> float:
        """Logarithm of the prior's centre."""
        return log(self.prior.value)

    def concerns(self, observation: Target) -> bool:
        """Return whether the parameter can change the prediction of an observation."""
        if "/" in self.name:
            owner, field = self.name.split("/")
            stack = observation.setting.stack
            cut = {
                effective_sharding(SHARDINGS[index], stack) for index in observation.plans.sharding.tolist()
            }
            return owner == stack.name and (field != SHARDING_ONLY or "zero3" in cut)
        if ":" in self.name:
            return self.name.split(":")[0] == kernel_family(observation.setting)
        if self.name.endswith("_speed_up"):
            return self.name.startswith(observation.setting.workload.precision)
        if self.name.startswith("grouped"):
            return observation.setting.model.architecture.moe is not None
        return True


def parameters_for(observations: Sequence[Target]) -> list[Parameter]:
    """Return the parameters that the observations depend on."""
    found = [
        Parameter(name, constants()[name], prior)
        for name, prior in priors().items()
        if ":" not in name and "/" not in name
    ]
    settings = [observation.setting for observation in observations]
    for family, device in sorted({kernel_family(s): s.cluster.pool.device.id for s in settings}.items()):
        known = kernels(device)
        values = {"gemm_efficiency": known.gemm_efficiency}
        values |= {f"attention_efficiency.{k}": v for k, v in known.attention_efficiency.items()}
        names = ((f"{family}:{name}", value) for name, value in values.items())
        found += [Parameter(name, value, priors()[name]) for name, value in names if name in priors()]
    of_any = {n.split("/")[1]: prior for n, prior in priors().items() if n.startswith(f"{ANY_STACK}/")}
    for name, facts in sorted({s.stack.name: s.stack for s in settings}.items()):
        found += [
            Parameter(f"{name}/{field}", getattr(facts, field), prior) for field, prior in of_any.items()
        ]
    return [p for p in found if any(p.concerns(o) for o in observations)]
