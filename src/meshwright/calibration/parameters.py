"""What may be fitted, from where it starts, and how far it may go.

Every parameter is positive and fitted in its logarithm with a normal prior around its present value: the width says
how far data may move it. Widths are narrow where kernels or links were measured by themselves and wide where nothing
but whole runs speaks of the constant (host time, element-wise factors). A parameter belongs to everything, to one
kernel family or to one stack.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

from meshwright.calibration.observations import Observation, kernel_family
from meshwright.cost.constants import constants, kernels

GLOBAL_WIDTHS: dict[str, float] = {
    "hbm_efficiency": 0.15,
    "score_pass_efficiency": 0.3,
    "loss_forward_bytes": 0.3,
    "gradient_accumulation_bytes": 0.5,
    "attention_backward_efficiency": 0.15,
    "nic_efficiency": 0.1,
    "nic_saturation_bytes": 0.5,
    "p2p_nic_efficiency": 0.4,
    "p2p_scaleup_efficiency": 0.4,
    "overlap_slowdown": 0.4,
    "multi_process_latency_s": 0.7,
    "step_fixed_s": 1.0,
    "grouped_plateau": 0.4,
    "grouped_half_tokens": 0.4,
    "fp8_speed_up": 0.3,
    "mxfp8_speed_up": 0.3,
    "nvfp4_speed_up": 0.3,
}
FAMILY_WIDTHS: dict[str, float] = {
    "gemm_efficiency": 0.15,
    "attention_efficiency.flash": 0.3,
    "attention_efficiency.flash3": 0.3,
}
STACK_WIDTHS: dict[str, float] = {
    "host_s_per_layer": 1.0,
    "elementwise_factor": 0.3,
    "fsdp_communication_factor": 0.3,
}
SHARDING_ONLY = "fsdp_communication_factor"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A constant that is fitted: its present value, the width of its prior in the logarithm, whom it concerns."""

    name: str
    value: float
    width: float

    @property
    def start(self) -> float:
        """Logarithm of the present value."""
        return log(self.value)

    def concerns(self, observation: Observation) -> bool:
        """Whether the parameter can change what is predicted of an observation."""
        if "/" in self.name:
            return self.name.split("/")[0] == observation.setting.stack.name
        if ":" in self.name:
            return self.name.split(":")[0] == kernel_family(observation.setting)
        if self.name.endswith("_speed_up"):
            return self.name.startswith(observation.setting.workload.precision)
        if self.name.startswith("grouped"):
            return observation.setting.model.architecture.moe is not None
        return True


def parameters_for(observations: Sequence[Observation]) -> list[Parameter]:
    """The parameters that the observations can say something about."""
    found = [Parameter(name, constants()[name], width) for name, width in GLOBAL_WIDTHS.items()]
    settings = [observation.setting for observation in observations]
    for family, device in sorted({kernel_family(s): s.cluster.pool.device.id for s in settings}.items()):
        known = kernels(device)
        values = {"gemm_efficiency": known.gemm_efficiency}
        values |= {f"attention_efficiency.{k}": v for k, v in known.attention_efficiency.items()}
        found += [Parameter(f"{family}:{name}", values[name], width) for name, width in FAMILY_WIDTHS.items()]
    for stack in sorted({s.stack.name: s.stack for s in settings}.items()):
        name, facts = stack
        found += [
            Parameter(f"{name}/{field}", getattr(facts, field), width)
            for field, width in STACK_WIDTHS.items()
            if field != SHARDING_ONLY or "zero3" in facts.shardings
        ]
    return [p for p in found if any(p.concerns(o) for o in observations)]
