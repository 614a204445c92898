"""Assumptions about a whole training that a user may state, each with its name, unit and origin.

``--assume NAME=VALUE`` replaces any of them. The first ones have usual values; the last ones stand for what is known of
the cluster: where they are given, they go before its file and the catalogue.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from math import isfinite

from meshwright.cluster.cluster import Cluster, Device, Pool, Sourced
from meshwright.errors import InputError, Problem, nearest

ON_THE_COMMAND_LINE = "assumed on the command line"
LARGE = 1e12


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumptions:
    """Storage in decimal GB/s for each node, times in the unit of their names.

    ``checkpoint_every_s``: seconds of work between two checkpoints, None for the best. The last three are None where
    the cluster says it.
    """

    storage_gbyte_per_s_per_node: float = 1.0
    restart_s: float = 660.0
    repair_hours: float = 4.0
    spare_nodes: int = 0
    checkpoint_every_s: float | None = None
    failures_per_1000_node_days: float | None = None
    usd_per_device_hour: float | None = None
    power_w_per_device: float | None = None

    def on(self, cluster: Cluster) -> Cluster:
        """Return the cluster with the assumed price, power and failures."""
        rate = self.failures_per_1000_node_days
        if rate is not None:
            cluster = replace(cluster, failures_per_1000_node_days=Sourced(rate, ON_THE_COMMAND_LINE))
        return replace(cluster, pools=tuple(map(self._priced, cluster.pools)))

    def _priced(self, pool: Pool) -> Pool:
        price, power = self.usd_per_device_hour, self.power_w_per_device
        device: Device = pool.device if power is None else replace(pool.device, power_w=power)
        paid = pool.usd_per_device_hour if price is None else Sourced(price, ON_THE_COMMAND_LINE)
        return replace(pool, device=device, usd_per_device_hour=paid)

    def text(self, *names: str) -> str:
        """Return some assumptions in words, with default values marked as guesses."""
        return ", ".join(self._text(name) for name in names)

    def _text(self, name: str) -> str:
        value = getattr(self, name)
        usual = " (usual)" if value == getattr(Assumptions(), name) else ""
        return f"{name} = {value:g}{usual}"


MAY_BE_ZERO = frozenset({"restart_s", "repair_hours", "spare_nodes", "failures_per_1000_node_days"})
WHOLE = frozenset({"spare_nodes"})
MOST_SPARES = 10**5


def parse_assumptions(texts: Iterable[str]) -> Assumptions:
    """Parse ``restart_s=300`` and the like; the last of equal names counts. Raise InputError (all problems)."""
    names = [field.name for field in fields(Assumptions)]
    found: dict[str, float | int] = {}
    problems = []
    for text in texts:
        name, _, value = (part.strip() for part in text.partition("="))
        if name not in names:
            problems.append(Problem("assume", text, "is nothing that is assumed", nearest(name, names)))
            continue
        number = _number(value)
        if number is None or number < 0 or (number == 0 and name not in MAY_BE_ZERO):
            least = "0 or more" if name in MAY_BE_ZERO else "more than 0"
            problems.append(Problem(f"assume.{name}", value, f"must be a number, {least}", f"{name}=1"))
        elif name in WHOLE and (number != int(number) or number > MOST_SPARES):
            rule = f"must be a whole number up to {MOST_SPARES}"
            problems.append(Problem(f"assume.{name}", value, rule, f"{name}=2"))
        else:
            found[name] = int(number) if name in WHOLE else number
    if problems:
        raise InputError(problems)
    return Assumptions(**found)  # type: ignore[arg-type]


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if isfinite(number) and abs(number) <= LARGE else None
