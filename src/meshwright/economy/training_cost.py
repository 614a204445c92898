"""Cost of a whole training: days, device-hours, dollars, energy and CO2, failures included.

    days = steps·T/share,  USD = days·24·price·(devices + spare devices)
    kWh of boards = days·24·devices·power limit,  kWh of the site = days·24·power of the site

T is the predicted step time; share is the goodput where the rate of failures is known, else 1: ``origin`` says which.
Spare nodes are paid for and draw power, and hours in which the job stands still count. The power of the site is that of
all nodes, spare ones too, times its PUE. Powers are limits and rated maxima, so that energies are upper bounds.
"""

from dataclasses import dataclass, replace
from math import ceil

from meshwright.economy.goodput import NOTHING, FailureModel, failure_model, job_nodes
from meshwright.economy.tokens_and_assumptions import TrainingTerms
from meshwright.plans.setting import Setting
from meshwright.result import Report
from meshwright.units import DAY_S, HOUR_S

WATTS_PER_KW = 1000.0


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of a training; None where a price, a power or an end of the training is unknown.

    ``kwh`` is that of the site where the power of a node is known, else that of the boards. ``power_kw`` is the most
    power of the site.
    """

    days: float | None = None
    device_hours: float | None = None
    usd: float | None = None
    kwh: float | None = None
    kwh_boards: float | None = None
    kwh_site: float | None = None
    kg_co2: float | None = None
    power_kw: float | None = None


@dataclass(frozen=True, slots=True)
class TrainingCost:
    """The training cost of one setting; ``outages`` is None where node failures are unknown.

    ``terms`` hold what is assumed of the setting's devices. Steps are given as they are predicted; they take
    ``slowdown`` times as long, which brings the device family to an assumed MFU. Where the tokens of the training are
    unknown, costs are of ``sequences``; None: of a step.
    """

    setting: Setting
    terms: TrainingTerms
    outages: FailureModel | None
    slowdown: float = 1.0
    sequences: int | None = None

    @classmethod
    def of(cls, setting: Setting, terms: TrainingTerms) -> "TrainingCost":
        """Return the training cost of a setting, with the assumptions applied to its cluster."""
        here = terms.of_device(setting.cluster.pools[0].device.id)
        return cls(setting, here, failure_model(setting, here.assumed))

    def of_plan(self, report: Report) -> "TrainingCost":
        """Return the training cost with the copies of a plan's checkpoints; ``report`` is at the predicted speed."""
        outages = None if self.outages is None else self.outages.of_plan(self.setting, report)
        return replace(self, outages=outages)

    def with_steps(self, steps: int) -> "TrainingCost":
        """Return the cost of a training of so many steps."""
        tokens = steps * self.setting.workload.tokens_per_step
        return replace(self, terms=replace(self.terms, tokens=tokens))

    @property
    def steps(self) -> float:
        """Count the steps of the training; where its tokens are unknown, those of ``sequences``, or 1."""
        workload = self.setting.workload
        if self.terms.tokens is not None:
            return ceil(self.terms.tokens / workload.tokens_per_step)
        return 1 if self.sequences is None else self.sequences / workload.global_batch

    @property
    def spare_nodes(self) -> int:
        """Whole nodes that stand by: as assumed, else the number with the least dollars."""
        return self.outages.spare_nodes if self.outages else self.terms.assumed.spare_nodes or 0

    @property
    def devices_paid(self) -> int:
        """Devices of the plan and of spare nodes."""
        return self.setting.cluster.devices + self.spare_nodes * self.setting.cluster.pool.node.devices

    @property
    def power_kw(self) -> float | None:
        """Most power of the site, spare nodes included; None where a node's is unknown."""
        node_w = self.setting.cluster.pool.node.power_w
        if node_w is None:
            return None
        return (job_nodes(self.setting) + self.spare_nodes) * node_w / WATTS_PER_KW * self.terms.assumed.pue

    def share(self, step_s: float) -> float:
        """Goodput, or 1 where it is unknown."""
        return 1.0 if self.outages is None else self.outages.share(self.slowdown * step_s)

    def seconds(self, step_s: float) -> float | None:
        """Return the seconds of all steps; None where failures come faster than progress."""
        share = self.share(step_s)
        return self.steps * self.slowdown * step_s / share if share > NOTHING else None

    def costs(self, step_s: float) -> Costs:
        """Return the costs of a training with such steps. They grow with ``step_s``."""
        seconds = self.seconds(step_s)
        return Costs(power_kw=self.power_kw) if seconds is None else self.costs_of(seconds)

    def costs_of(self, seconds: float) -> Costs:
        """Return the costs of a training that takes so long."""
        pool, hours = self.setting.cluster.pool, seconds / HOUR_S
        price, board_w, site_kw = pool.usd_per_device_hour, pool.device.power_w, self.power_kw
        boards = None if board_w is None else hours * self.setting.cluster.devices * board_w / WATTS_PER_KW
        site = None if site_kw is None else hours * site_kw
        kwh, co2 = boards if site is None else site, self.terms.assumed.kg_co2_per_kwh
        return Costs(
            days=seconds / DAY_S,
            device_hours=hours * self.setting.cluster.devices,
            usd=None if price is None else hours * self.devices_paid * price.value,
            kwh=kwh,
            kwh_boards=boards,
            kwh_site=site,
            kg_co2=None if kwh is None or co2 is None else kwh * co2,
            power_kw=site_kw,
        )
