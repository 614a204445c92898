"""Assumptions about a whole training that a user may state, each with its name, unit and origin.

``--assume NAME=VALUE`` replaces any of them, and ``--assume FAMILY:NAME=VALUE`` those of one device family. Some have
usual values; others stand for what is known of the cluster: where they are given, they go before its file and the
catalogue.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from math import inf, isfinite

from meshwright.cluster.catalog import device_id, is_device
from meshwright.cluster.cluster import Cluster, Device, Pool, Sourced
from meshwright.cost.operators.kernel_and_collective_times import COMPUTE_SPEED
from meshwright.economy.spare_nodes import MOST
from meshwright.errors import InputError, Problem, nearest

ON_THE_COMMAND_LINE = "assumed on the command line"
LARGE, WATTS_PER_KW = 1e12, 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """Storage in decimal GB/s for each node, times in the unit of their names.

    ``checkpoint_every_s``: seconds of work between two checkpoints, None for the best. ``spare_nodes``: None for the
    number with the least dollars. ``pue``: power of the site over power of its nodes. ``mfu``: of the recommended plan,
    to which all steps of its device family are scaled; ``efficiency``: speed of all compute over what is predicted.
    ``checkpoint_async``: checkpoints are saved in the background. ``by_hand_hours``: until somebody starts a stopped
    run again. ``shrink_s``: until the replicas that are left go on after a failure, or together with one that is back.
    ``shared_failures``: the share of failures that end all replicas. ``churn_per_hour``: how often each peer of a
    pipeline leaves, None where nobody asks; ``skip_share``: part of the stages that a micro-batch leaves out. The
    others are None where the cluster says them, or where nobody does. ``families`` has the names that are replaced for
    single devices, by id.
    """

    storage_gbyte_per_s_per_node: float = 1.0
    restart_s: float = 660.0
    repair_hours: float = 4.0
    pue: float = 1.2
    spare_nodes: int | None = None
    checkpoint_every_s: float | None = None
    checkpoint_async: bool = False
    by_hand_hours: float = 2.0
    shrink_s: float = 60.0
    shared_failures: float = 0.23
    failures_per_1000_node_days: float | None = None
    usd_per_device_hour: float | None = None
    power_w_per_device: float | None = None
    power_kw_per_node: float | None = None
    kg_co2_per_kwh: float | None = None
    mfu: float | None = None
    efficiency: float | None = None
    churn_per_hour: float | None = None
    skip_share: float = 1 / 3
    families: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def of_device(self, device: str) -> "Assumptions":
        """Return the assumptions that hold for one device id, without families."""
        return replace(self, **{"families": {}} | dict(self.families.get(device, {})))  # type: ignore[arg-type]

    def on(self, cluster: Cluster) -> Cluster:
        """Return the cluster with the assumed price, power and failures."""
        here = self.of_device(cluster.pools[0].device.id)
        rate = here.failures_per_1000_node_days
        if rate is not None:
            cluster = replace(cluster, failures_per_1000_node_days=Sourced(rate, ON_THE_COMMAND_LINE))
        if here.efficiency is not None:
            constants = dict(cluster.calibration) | {COMPUTE_SPEED: here.efficiency}
            cluster = replace(cluster, calibration=tuple(constants.items()))
        return replace(cluster, pools=tuple(self.of_device(p.device.id)._priced(p) for p in cluster.pools))

    def _priced(self, pool: Pool) -> Pool:
        price, power, node_kw = self.usd_per_device_hour, self.power_w_per_device, self.power_kw_per_node
        device: Device = pool.device if power is None else replace(pool.device, power_w=power)
        node = pool.node if node_kw is None else replace(pool.node, power_w=node_kw * WATTS_PER_KW)
        paid = pool.usd_per_device_hour if price is None else Sourced(price, ON_THE_COMMAND_LINE)
        return replace(pool, device=device, node=node, usd_per_device_hour=paid)

    @property
    def assumes_speed(self) -> bool:
        """Return true if the speed is assumed: then it has no spread."""
        return self.mfu is not None or self.efficiency is not None

    def text(self, *names: str) -> str:
        """Return some assumptions in words, with default values marked as guesses."""
        return ", ".join(self._text(name) for name in names)

    def _text(self, name: str) -> str:
        value = getattr(self, name)
        usual = " (usual)" if value == getattr(Assumptions(), name) else ""
        if name in FLAGS:
            return f"{name} = {str(value).lower()}{usual}"
        return f"{name} = {value:g}{usual}"


MAY_BE_ZERO = frozenset(
    {
        *("restart_s", "repair_hours", "spare_nodes", "failures_per_1000_node_days", "kg_co2_per_kwh"),
        *("by_hand_hours", "shrink_s", "shared_failures", "churn_per_hour", "skip_share"),
    }
)
WHOLE = frozenset({"spare_nodes"})
FLAGS = frozenset({"checkpoint_async"})
LEAST, MOST_OF = {"pue": 1.0}, {"mfu": 1.0, "efficiency": 1.0, "shared_failures": 1.0}
"""Numbers that are not below, and not above these."""
BELOW = {"skip_share": 1.0}
"""Numbers that are less than these."""
OF_DEVICES = (
    *("mfu", "efficiency", "failures_per_1000_node_days", "usd_per_device_hour"),
    *("power_w_per_device", "power_kw_per_node"),
)
"""Names of what differs between device families."""
NAMES = tuple(of.name for of in fields(Assumptions) if of.name != "families")


def parse_assumptions(texts: Iterable[str]) -> Assumptions:
    """Parse ``restart_s=300``, ``b200:usd_per_device_hour=2`` and the like; the last of equal names counts.

    Raises InputError with all problems.
    """
    common: dict[str, float] = {}
    families: dict[str, dict[str, float]] = {}
    problems: list[Problem] = []
    for text in texts:
        written, _, value = (part.strip() for part in text.partition("="))
        family, colon, name = (part.strip() for part in written.rpartition(":"))
        if name not in NAMES:
            problems.append(Problem("assume", text, "is nothing that is assumed", nearest(name, NAMES)))
            continue
        try:
            held = families.setdefault(_device(family), {}) if colon else common
            held[name] = _number(name, value)
        except InputError as error:
            problems += error.problems
    for where, held in (("", common), *((f"{family}:", common | own) for family, own in families.items())):
        if "mfu" in held and "efficiency" in held:
            rule = "gives the speed, and so does efficiency, which is assumed too"
            problems.append(Problem(f"assume.{where}mfu", held["mfu"], rule, "leave one of them out"))
    if problems:
        raise InputError(problem for at, problem in enumerate(problems) if problem not in problems[:at])
    return Assumptions(families=families, **common)  # type: ignore[arg-type]


def _device(family: str) -> str:
    """Return the catalogue's id of a family; one of a cluster file may have another."""
    return device_id(family) if is_device(family) else family


def _number(name: str, text: str) -> float:
    """Return the number of an assumption. Raise InputError for one that it cannot be."""
    if name in FLAGS:
        if text not in ("true", "false"):
            raise InputError(Problem(f"assume.{name}", text, "must be true or false", f"{name}=true"))
        return text == "true"
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    least, example = LEAST.get(name, 0.0), 2 if name in WHOLE else max(1, LEAST.get(name, 0.0))
    if not isfinite(number) or number > LARGE or number < least or (number == 0 and name not in MAY_BE_ZERO):
        bound = f"{least:g} or more" if name in MAY_BE_ZERO or least else "more than 0"
        raise InputError(Problem(f"assume.{name}", text, f"must be a number, {bound}", f"{name}={example:g}"))
    if number > MOST_OF.get(name, LARGE):
        rule = f"must be a fraction, at most {MOST_OF[name]:g}"
        raise InputError(Problem(f"assume.{name}", text, rule, f"{name}=0.4"))
    if number >= BELOW.get(name, inf):
        rule = f"must be a fraction, less than {BELOW[name]:g}"
        raise InputError(Problem(f"assume.{name}", text, rule, f"{name}=0.25"))
    if name in WHOLE and (number != int(number) or number > MOST):
        rule = f"must be a whole number up to {MOST}"
        raise InputError(Problem(f"assume.{name}", text, rule, f"{name}=2"))
    return int(number) if name in WHOLE else number
