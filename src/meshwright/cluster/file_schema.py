"""Schema of a cluster file, as people write it, with the unit in the name of every number.

    name: two-generations
    pools:
      - {name: fast, count: 256, device: h100-sxm-80gb, node: aws-p5.48xlarge, usd_per_device_hour: 4.1}
      - name: slow
        count: 64
        device: {like: a100-sxm-80gb, power_w: 330}
        node: {like: dgx-a100, nic_gbit_per_s_per_node: 800}
    tiers: [{name: pod, devices: 128, oversubscription: 4}]

Unequal links between nodes (``cluster/node_links.py``):

    links:
      groups:
        - {name: ib, nodes: [0, 1, 2, 3], nic_gbit_per_s_per_node: 1600}
        - {name: roce, nodes: [4, 5, 6, 7], nic_gbit_per_s_per_node: 800}
      between_groups_gbit_per_s_per_node: 100

A device or node is a name of the catalogue, a name with changes (``like``), or written out. An omitted value takes
the usual one; ``unknown`` stands for a power, price or failure rate that nobody knows. Bandwidths are one direction,
peaks dense, G and T decimal, GiB binary.
"""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from meshwright.plans.files.strict_types import Strict

LARGE = 1e12
UNKNOWN = "unknown"
Positive = Annotated[float, Field(gt=0, le=LARGE)]
NotNegative = Annotated[float, Field(ge=0, le=LARGE)]
Count = Annotated[int, Field(ge=1, le=10**6)]
Text = Annotated[str, Field(max_length=2000)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]{0,99}$")]
PeakName = Literal["fp32", "tf32", "bf16", "fp16", "fp8", "fp4"]


def _if_known(value: object) -> object:
    return None if value == UNKNOWN else value


def _named(value: object) -> object:
    return {"like": value} if isinstance(value, str) else value


def _plain_figure(value: object) -> object:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return {"value": value} if is_number else value


PositiveOrUnknown = Annotated[Positive | None, BeforeValidator(_if_known)]


class DeviceFile(Strict):
    """A device: ``like`` one of the catalogue, with differences, or written out.

    ``synchronous``: launching a kernel does not overlap kernels, as on a CPU.
    """

    like: Text | None = None
    id: Name | None = None
    vendor: Text = ""
    year: Annotated[int, Field(ge=0, le=9999)] = 0
    peak_tflops: Annotated[dict[PeakName, Positive], Field(min_length=1)] | None = None
    memory_gib: Positive | None = None
    memory_gbyte_per_s: Positive | None = None
    scaleup_gbyte_per_s_per_device: Positive | None = None
    scaleup_link: Text = ""
    power_w: PositiveOrUnknown = None
    source: Text = "the cluster file"
    confidence: Text = "as given"
    notes: Text = ""
    synchronous: bool = False


class NodeFile(Strict):
    """A host: ``like`` one of the catalogue, with differences, or written out."""

    like: Text | None = None
    name: Name | None = None
    devices: Count | None = None
    scaleup_domain: Count | None = None
    scaleup_gbyte_per_s_per_device: Positive | None = None
    nic_count: Annotated[int, Field(ge=0, le=10**6)] | None = None
    nic_gbit_per_s_per_node: Positive | None = None
    fabric: Text = ""
    power_w: PositiveOrUnknown = None
    host_gbyte_per_s_per_device: Positive | None = None
    host_memory_gib: Positive | None = None
    host_memory_gbyte_per_s: Positive | None = None
    host_memory_source: Text = "the cluster file"
    source: Text = "the cluster file"


class Figure(Strict):
    """A disputed number, with its origin."""

    value: NotNegative
    source: Text = "the cluster file"
    date: Text = ""
    offers: tuple[Positive, ...] = ()
    term: Text = ""
    events: Annotated[int, Field(ge=0, le=10**9)] | None = None


DeviceSpec = Annotated[DeviceFile, BeforeValidator(_named)]
NodeSpec = Annotated[NodeFile, BeforeValidator(_named)]
FigureOrUnknown = Annotated[
    Annotated[Figure, BeforeValidator(_plain_figure)] | None, BeforeValidator(_if_known)
]


class PoolFile(Strict):
    """Equal devices in equal nodes."""

    name: Name | None = None
    count: Count
    device: DeviceSpec
    node: NodeSpec | None = None
    usd_per_device_hour: FigureOrUnknown = None


class TierFile(Strict):
    """A level of the network above the node; ``source`` says who measured its oversubscription."""

    name: Name
    devices: Count
    oversubscription: Annotated[float, Field(ge=1, le=10**6)]
    source: Text = ""


Matrix = Annotated[
    tuple[Annotated[tuple[NotNegative, ...], Field(max_length=4096)], ...],
    Field(min_length=1, max_length=4096),
]
"""One list per node, of the rates to all nodes; the entry of a node itself is ignored."""
NodeIndex = Annotated[int, Field(ge=0, le=10**6)]


class LinkGroupFile(Strict):
    """Nodes with cards of one kind, which communicate at their rate."""

    name: Name
    nodes: Annotated[tuple[NodeIndex, ...], Field(min_length=1)]
    nic_gbit_per_s_per_node: Positive


class PairFile(Strict):
    """Two nodes and one rate between them."""

    nodes: Annotated[tuple[NodeIndex, ...], Field(min_length=2, max_length=2)]
    relative: Positive | None = None
    nic_gbit_per_s_per_node: Positive | None = None
    sendrecv_gbyte_per_s_per_device: Positive | None = None


class LinksFile(Strict):
    """Links between nodes: by groups or as a matrix, and single pairs that differ from it."""

    groups: Annotated[tuple[LinkGroupFile, ...], Field(max_length=1000)] = ()
    between_groups_gbit_per_s_per_node: Positive | None = None
    relative: Matrix | None = None
    nic_gbit_per_s_per_node: Matrix | None = None
    sendrecv_gbyte_per_s_per_device: Matrix | None = None
    pairs: Annotated[tuple[PairFile, ...], Field(max_length=10**6)] = ()
    kinds: tuple[Name, ...] = ()
    source: Text = "the cluster file"


CalibratedName = Literal[
    "gemm_efficiency",
    "gemm_memory_efficiency",
    "gemm_launch_s",
    "hbm_efficiency",
    "attention_efficiency.flash",
    "attention_efficiency.flash3",
    "attention_backward_efficiency",
    "host_s_per_layer",
    "nic_efficiency",
    "nic_saturation_bytes",
    "nic_latency_s",
    "multi_process_latency_s",
    "p2p_latency_s",
    "p2p_scaleup_efficiency",
    "p2p_nic_efficiency",
    "all_reduce.latency_s",
    "all_reduce.latency_per_rank_s",
    "all_reduce.efficiency",
    "all_reduce.saturation_bytes",
    "all_gather.latency_s",
    "all_gather.latency_per_rank_s",
    "all_gather.efficiency",
    "all_gather.saturation_bytes",
]
"""Constants of the cost model that a cluster may override: fitted to runs on it, or measured.

``all_reduce`` and ``all_gather`` are the curves of collectives inside a fast domain (``cost/constants.py``); their
``efficiency`` is the plateau of the bus bandwidth over the link's rate.
"""


class CalibratedFile(Strict):
    """The runs that ``calibration`` was fitted to, and the standard deviation of the logarithm of the error left."""

    stack: Name
    runs: Count
    sigma: Annotated[float, Field(gt=0, le=5)]


class ClusterFile(Strict):
    """The whole file. ``calibration`` holds constants of the cost model that were fitted to runs on this cluster.

    ``step_jitter`` is how much its devices differ in speed, as the standard deviation of the logarithm.
    """

    name: Text = "cluster"
    pools: Annotated[tuple[PoolFile, ...], Field(min_length=1, max_length=1000)]
    tiers: Annotated[tuple[TierFile, ...], Field(max_length=100)] = ()
    links: LinksFile | None = None
    failures_per_1000_node_days: FigureOrUnknown = None
    calibration: Annotated[dict[CalibratedName, Positive], Field(default_factory=dict)]
    calibrated: CalibratedFile | None = None
    step_jitter: Annotated[float, Field(ge=0, le=1)] | None = None
    source: Text = "the cluster file"
