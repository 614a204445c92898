"""Cost of a whole training: days, device-hours, dollars and kWh, failures included.

    days = steps·T/share,  USD = days·24·price·(devices + spare devices),  kWh = days·24·devices·power limit

T is the predicted step time, at the ends of its 80 % interval for low and high; share is the goodput where the rate of
failures is known, else 1, and ``origin`` says which. Spare nodes are paid for, and hours in which the job stands still.
The energy is an upper bound: boards at their limit, without hosts and network.
"""

from dataclasses import dataclass
from math import ceil

from meshwright.economy.goodput import NOTHING, FailureModel, failure_model
from meshwright.economy.tokens_and_assumptions import TrainingTerms
from meshwright.plans.setting import Setting
from meshwright.units import DAY_S, HOUR_S

WATTS_PER_KW = 1000.0


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of a training; None where a price, a power limit or an end of the training is unknown."""

    days: float | None
    device_hours: float | None
    usd: float | None
    kwh: float | None


@dataclass(frozen=True, slots=True)
class TrainingCost:
    """The training cost of one setting; ``failure_model`` is None where node failures are unknown."""

    setting: Setting
    terms: TrainingTerms
    outages: FailureModel | None

    @classmethod
    def of(cls, setting: Setting, terms: TrainingTerms) -> "TrainingCost":
        """Return the training cost of a setting, with the assumptions applied to its cluster."""
        return cls(setting, terms, failure_model(setting, terms.assumed))

    @property
    def steps(self) -> int:
        """Count the steps of the training; 1 where its tokens are unknown."""
        return (
            1
            if self.terms.tokens is None
            else ceil(self.terms.tokens / self.setting.workload.tokens_per_step)
        )

    @property
    def devices_paid(self) -> int:
        """Devices of the plan and of spare nodes."""
        spares = self.terms.assumed.spare_nodes
        return self.setting.cluster.devices + spares * self.setting.cluster.pool.node.devices

    def share(self, step_s: float) -> float:
        """Goodput, or 1 where it is unknown."""
        return 1.0 if self.outages is None else self.outages.share(step_s)

    def seconds(self, step_s: float) -> float | None:
        """Return the seconds of all steps; None where failures come faster than progress."""
        share = self.share(step_s)
        return self.steps * step_s / share if share > NOTHING else None

    def costs(self, step_s: float) -> Costs:
        """Return the costs of a training with such steps. They grow with ``step_s``."""
        seconds = self.seconds(step_s)
        if seconds is None:
            return Costs(None, None, None, None)
        pool, hours = self.setting.cluster.pool, seconds / HOUR_S
        price, power = pool.usd_per_device_hour, pool.device.power_w
        return Costs(
            days=seconds / DAY_S,
            device_hours=hours * self.setting.cluster.devices,
            usd=None if price is None else hours * self.devices_paid * price.value,
            kwh=None if power is None else hours * self.setting.cluster.devices * power / WATTS_PER_KW,
        )
