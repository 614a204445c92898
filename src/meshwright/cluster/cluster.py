"""The cluster noun: devices, nodes, links, prices, power and failures, as frozen data.

A cluster is one or more *pools* of equal nodes. Inside a node (or a larger scale-up domain such as NVL72) the
devices share a fast network; between domains each node has NICs, and above that there may be oversubscribed tiers.
Bandwidths are one direction. Peaks are dense. Facts from a table keep their source.
"""

from dataclasses import asdict, dataclass, field

from meshwright.units import BytesPerSecondPerDevice, BytesPerSecondPerNode, per_device


@dataclass(frozen=True, slots=True)
class Sourced:
    """A number with its origin, for disputed facts (prices, failure rates).

    ``offers``: the published prices whose median the value is, ``term`` what they are for. ``events``: how many
    failures were counted for the rate. Empty or None: nothing published tells how sure the value is.
    """

    value: float
    source: str
    date: str = ""
    offers: tuple[float, ...] = ()
    term: str = ""
    events: int | None = None

    def to_data(self) -> dict[str, object]:
        """Return the keys of a cluster file; of what tells how sure the value is, only what is known."""
        known = {"offers": list(self.offers), "term": self.term, "events": self.events}
        data: dict[str, object] = {"value": self.value, "source": self.source, "date": self.date}
        return data | {name: value for name, value in known.items() if value not in ([], "", None)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One accelerator as the framework sees it (an MI250X GCD, not the module).

    ``peak_flops`` maps a precision name (fp32, tf32, bf16, fp16, fp8, fp4) to dense FLOP/s; absent = none.
    ``power_w`` is the board's limit; None = unknown. ``synchronous``: the thread that launches a kernel also runs it,
    as on a CPU, so that launching does not overlap kernels.
    """

    id: str
    vendor: str
    year: int
    peak_flops: dict[str, float]
    memory_bytes: int
    memory_bytes_per_s: float
    scaleup_bytes_per_s: BytesPerSecondPerDevice
    scaleup_link: str
    power_w: float | None
    source: str
    confidence: str
    notes: str = ""
    synchronous: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One host. ``scaleup_domain``: devices in one fast domain, which may span hosts (NVL72).

    ``host_bytes_per_s`` is a device's nominal bandwidth to host memory, in each direction while all devices use
    theirs; ``host_memory_bytes`` that memory and ``host_memory_bytes_per_s`` its nominal bandwidth, of the whole node,
    both from ``host_memory_source``. None: unknown.
    """

    name: str
    devices: int
    scaleup_domain: int
    scaleup_bytes_per_s: BytesPerSecondPerDevice
    nic_count: int
    nic_bytes_per_s: BytesPerSecondPerNode
    fabric: str = ""
    power_w: float | None = None
    host_bytes_per_s: BytesPerSecondPerDevice | None = None
    host_memory_bytes: int | None = None
    host_memory_bytes_per_s: BytesPerSecondPerNode | None = None
    host_memory_source: str = ""
    source: str = ""

    @property
    def nic_bytes_per_s_per_device(self) -> BytesPerSecondPerDevice:
        """Each device's share of the node's NICs."""
        return per_device(self.nic_bytes_per_s, self.devices)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """A level of the network above the node: groups of ``devices``, ``oversubscription`` to one.

    ``source``: who measured the oversubscription, empty if it is as given.
    """

    name: str
    devices: int
    oversubscription: float
    source: str = ""

    def to_data(self) -> dict[str, str | int | float]:
        """Return the keys of a cluster file; a source only where there is one."""
        data = asdict(self)
        return data if self.source else {key: data[key] for key in data if key != "source"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """``count`` equal devices in equal nodes; ``count`` need not fill the last node."""

    name: str
    device: Device
    node: Node
    count: int
    usd_per_device_hour: Sourced | None = None

    @property
    def devices_of_host(self) -> int:
        """Devices that share a host: those of a node, or all of them if they are fewer."""
        return min(self.node.devices, self.count)

    @property
    def host_memory_bytes_per_s(self) -> BytesPerSecondPerDevice | None:
        """Each device's part of the bandwidth of its host's memory; a single device has all of it."""
        rate = self.node.host_memory_bytes_per_s
        return None if rate is None else per_device(rate, self.devices_of_host)


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Unequal links between nodes: ``shares[i][j]`` is the fraction of the cards' rate, up to 1.

    A node is here a fast domain, or a host if that is larger. Shares are those of the slower direction;
    a node's own is 1. ``kinds`` names the network of each node (ib, roce), empty if unknown.
    """

    shares: tuple[tuple[float, ...], ...]
    kinds: tuple[str, ...] = ()
    source: str = ""

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self.shares)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationRuns:
    """The runs that a cluster was calibrated on: their stack and number.

    ``sigma`` is the standard deviation of log(measured/predicted) that is left on this cluster.
    """

    stack: str
    runs: int
    sigma: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The hardware of a plan. ``failures_per_1000_node_days`` is None if unknown.

    ``links``: None if all nodes communicate at their cards' rate. ``calibration`` holds constants of the cost
    model, by name, that were measured on this cluster, ``calibrated`` the runs that they were fitted to.
    ``step_jitter`` is the standard deviation of the logarithm of a device's speed, of which a step waits for the
    slowest; None: the usual one.
    """

    name: str
    pools: tuple[Pool, ...]
    tiers: tuple[Tier, ...] = ()
    links: Links | None = None
    failures_per_1000_node_days: Sourced | None = None
    calibration: tuple[tuple[str, float], ...] = ()
    calibrated: CalibrationRuns | None = None
    step_jitter: float | None = None
    source: str = field(default="")

    @property
    def devices(self) -> int:
        """Devices in all pools."""
        return sum(pool.count for pool in self.pools)

    @property
    def pool(self) -> Pool:
        """The only pool of a homogeneous cluster."""
        assert len(self.pools) == 1, "a cluster of several pools has no single one"
        return self.pools[0]

    @property
    def usd_per_hour(self) -> float | None:
        """Price of the whole cluster; None if any pool has no price."""
        if any(pool.usd_per_device_hour is None for pool in self.pools):
            return None
        return sum(p.count * p.usd_per_device_hour.value for p in self.pools if p.usd_per_device_hour)
