"""Fitted parameters: their priors, and how far the data may move them.

Every parameter is positive and fitted in its logarithm with a normal prior: ``priors.csv`` has its centre, its width
and its origin: kernels and links that were measured separately, published figures, or counting. Four of
them already use some published runs, and their origins say so: messages inside a node (profiled with Zero Bubble's
runs), sharded communication (earlier fits), host time (a bound seen in runs) and that of experts (rows of one source).
Widths are narrow if something was measured and wide if only whole runs depend on the constant (host time, element-wise
factors). A parameter belongs to everything, to one kernel family (``a100:…``) or to one stack (``*/…`` in the table:
the same prior for all stacks).
"""

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import log
from typing import NamedTuple

from meshwright.calibration.observations import Target, kernel_family
from meshwright.plans.choices.sharding import SHARDINGS
from meshwright.program.model_states.stack_zero_semantics import effective_sharding

SHARDING_ONLY = "fsdp_communication_factor"
"""A number of a stack that only runs with sharded parameters depend on."""
EXPERTS_ONLY = "expert_host_s"
"""A number of a stack that only runs of models with experts depend on."""


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
            if field == EXPERTS_ONLY and observation.setting.model.architecture.moe is None:
                return False
            return owner == stack.name and (field != SHARDING_ONLY or "zero3" in cut)
        if ":" in self.name:
            return self.name.split(":")[0] == kernel_family(observation.setting)
        if self.name.endswith("_speed_up"):
            return self.name.startswith(observation.setting.workload.precision)
        if self.name.startswith(("grouped", "fused_expert")):
            return observation.setting.model.architecture.moe is not None
        return True
