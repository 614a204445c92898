"""Formulas for the seconds of one kernel or collective on a device and node. All accept arrays.

GEMM     t = t0 + ‖F/(e·P), bytes/(b·BW)‖_p with F = 2mkn and bytes = 2(mk + kn + mn) (fitted to measured
         kernels; 5–7 % error at training sizes), P the 16-bit peak. 8 and 4 bit are faster by a constant factor
         and add a pass of 3·m·k bytes that quantises the input; fp8 recipes have a factor and bytes of their own.
flash    t = t0 + F/(e·P) + bytes/(η·BW); e per kernel class and device.
pass     t = bytes/(η·BW).
grouped  F/(e'·P), e' = e·r/(r + r½)·w/(w + w½) with r rows per expert and w the harmonic mean of the two widths of a
         product: many rows of a wide expert are multiplied as well as by a dense GEMM.
collective, n ranks of which g share a fast domain, k = n/g:
         t = α + max(t_fast, t_nic)·((V + V0)/V)^q, t_fast = c·(g−1)/g·P/B, t_nic = c·(k−1)/k·P/g/(η·NIC)·(k/2)^γ;
         c = 2 for all-reduce, 1 for all-gather and reduce-scatter. More domains share links that no file declares:
         γ = ``nic_loss_exponent`` makes that 5.5 % a doubling (exchanges over 2 to 32 nodes were measured to lose 7 %,
         runs pull it down). α has a hop for each of a ring's ranks, n − k inside domains and k − 1 between them;
         all-reduces over domains are trees.
all-to-all, of P bytes that a rank sends: t = α + max(t_fast, t_nic), t_fast = (g−1)/n·P/B·((V + V0)/V)^q on the
         curve of the all-gather (within 8 % of what was measured on A100 and H100, up to 24 % too quick on Blackwell
         with 512 MiB), t_nic = (n−g)/n·P/(η'·NIC)·(k/2)^γ, large and small messages alike, with
         η' = η·``exchange_gain``, no more than 1. Where the stack can, copies of a token for one domain, and for one
         rank, go once.

What they ignore: clocks and power, wave quantisation below ~1,000 rows, congestion between jobs, tiers that are not
declared. Bandwidths are per device and one direction; a device owns its share of the NICs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from meshwright.cluster.cluster import Pool, Tier
from meshwright.cluster.fast_domains import usable_domain
from meshwright.cost.constants import (
    Curve,
    Kernels,
    RecipeCost,
    calibrated,
    constants,
    kernels,
    on_links,
    recipe_cost,
)
from meshwright.program.expert_dispatch.dispatch_forms import DeduplicatedBytes
from meshwright.program.layouts.node_hops import Fabric
from meshwright.program.local_shape import Number
from meshwright.workload.fp8_recipe import Fp8Recipe

BYTES_16 = 2
RINGS = ("all-gather", "reduce-scatter")
"""Collectives whose messages pass every rank in turn: their latency has a hop for each."""
LOW_PRECISIONS = ("fp8", "mxfp8", "nvfp4")


@dataclass(frozen=True, slots=True)
class HardwareTimes:
    """Forms of one pool's device, node and network at one precision. Times in seconds.

    The curves of ``kernels`` are those of this node's links.
    """

    kernels: Kernels
    constants: Mapping[str, float]
    peak_16bit_flops: float
    memory_bytes_per_s: float
    scaleup_bytes_per_s: float
    nic_bytes_per_s: float
    domain: int
    precision: str = "bf16"
    recipe: RecipeCost | None = None
    tiers: tuple[Tier, ...] = ()
    fabric: Fabric | None = None
    host_bytes_per_s: float | None = None
    host_memory_bytes_per_s: float | None = None
    synchronous: bool = False

    def gemm(self, m: Number, k: Number, n: Number, more_bytes: Number = 0.0) -> Number:
        """Return the seconds of (m, k) × (k, n); the epilogue moves ``more_bytes`` in addition."""
        kernel = self.kernels
        compute = 2.0 * m * k * n / (kernel.gemm_efficiency * self.peak_16bit_flops * self.speed_up)
        moved = BYTES_16 * (m * k + k * n + m * n) + more_bytes
        memory = moved / (kernel.gemm_memory_efficiency * self.memory_bytes_per_s)
        return (
            kernel.gemm_launch_s + smooth_maximum(compute, memory, kernel.gemm_norm) + self._quantise(m * k)
        )

    @property
    def speed_up(self) -> float:
        """Return the speed-up of a matrix product over 16 bit, without its quantisation."""
        rate = 1.0 if self.recipe is None else self.recipe.product_rate
        return rate * self.constants.get(f"{self.precision}_speed_up", 1.0)

    def _quantise(self, elements: Number) -> Number:
        """Return the seconds to read an input in 16 bit and write it in 8 or 4."""
        if self.precision not in LOW_PRECISIONS:
            return 0.0
        each = self.constants["quantise_bytes"] if self.recipe is None else self.recipe.quantise_bytes
        return elements * each / (self.constants["quantise_efficiency"] * self.memory_bytes_per_s)

    def grouped_gemm(
        self, rows: Number, experts: Number, k: Number, n: Number, more_bytes: Number = 0.0
    ) -> Number:
        """``rows`` spread evenly over ``experts`` local experts, each (rows/experts, k) × (k, n)."""
        c = self.constants
        per_expert = np.maximum(rows / experts, 1e-9)
        width = 2 * k * n / (k + n)
        filled = (
            per_expert / (per_expert + c["grouped_half_tokens"]) * width / (width + c["grouped_half_width"])
        )
        efficiency = self.kernels.gemm_efficiency * filled
        compute = 2.0 * rows * k * n / (efficiency * self.peak_16bit_flops * self.speed_up)
        memory = more_bytes / (self.kernels.gemm_memory_efficiency * self.memory_bytes_per_s)
        moving = smooth_maximum(compute, memory, self.kernels.gemm_norm)
        grouped = self.kernels.gemm_launch_s + moving + self._quantise(rows * k)
        return np.where(np.asarray(experts) > 1, grouped, self.gemm(rows, k, n, more_bytes))

    def spread(self, inverse: NDArray[np.int64], shape: tuple[int, ...]) -> "HardwareTimes":
        """Return the times of plans, of which plan i has the speeds in row ``inverse[i]``, in another shape."""
        compute, memory = np.asarray(self.peak_16bit_flops), np.asarray(self.memory_bytes_per_s)
        return replace(
            self,
            peak_16bit_flops=compute[inverse].reshape(shape),  # type: ignore[arg-type]
            memory_bytes_per_s=memory[inverse].reshape(shape),  # type: ignore[arg-type]
        )

    def flash(self, flops: Number, moved: Number, kernel_class: str, ratio: float = 1.0) -> Number:
        """Return the seconds of an attention kernel; ``ratio`` scales the efficiency of the class."""
        efficiency = self.kernels.attention_efficiency[kernel_class] * ratio
        return (
            self.kernels.attention_launch_s + flops / (efficiency * self.peak_16bit_flops) + self.pass_(moved)
        )

    def pass_(self, moved: Number, efficiency: str = "hbm_efficiency") -> Number:
        """Return the seconds of a memory-bound kernel that moves ``moved`` bytes."""
        return moved / (self.constants[efficiency] * self.memory_bytes_per_s)

    def collective(
        self,
        kind: str,
        logical_bytes: Number,
        ranks: Number,
        local: Number,
        once: DeduplicatedBytes | None = None,
        congestion: Number = 1.0,
    ) -> Number:
        """Return the seconds of a collective of ``ranks``, ``local`` of them in each fast domain; 0 for one.

        ``congestion``: how many times longer the network between domains takes than its cards alone. ``once``: what an
        all-to-all carries are tokens' copies for these experts, one to a domain and one to a rank.
        """
        return self.over(kind, ranks, local, congestion).seconds(logical_bytes, once)

    def over(self, kind: str, ranks: Number, local: Number, congestion: Number = 1.0) -> "CollectiveTimes":
        """Return the times of a kind of collective over groups, for any number of bytes."""
        return CollectiveTimes(self, kind, ranks, local, congestion)

    def nic_share_bytes_per_s(self, nodes: Number) -> Number:
        """Return a device's share of the cards, less what collectives over more than two domains lose of it."""
        more = np.maximum(nodes, 2.0) / 2.0
        return self.nic_bytes_per_s / more ** self.constants["nic_loss_exponent"]

    @property
    def exchange_efficiency(self) -> Number:
        """Share of a card that an all-to-all uses: more than other collectives, up to the whole card."""
        others = self.constants["nic_efficiency"]
        return np.maximum(others, np.minimum(1.0, others * self.constants["exchange_gain"]))

    def p2p(self, message_bytes: Number, crosses: Number, congestion: Number = 1.0) -> Number:
        """Return the seconds of a pipeline message; ``crosses`` is true where it leaves the fast domain."""
        c = self.constants
        fast = c["p2p_scaleup_efficiency"] * self.scaleup_bytes_per_s
        slow = c["p2p_nic_efficiency"] * self.nic_bytes_per_s / congestion
        return c["p2p_latency_s"] + message_bytes / np.where(crosses, np.minimum(slow, fast), fast)


class CollectiveTimes:
    """Seconds of a kind of collective over groups of ``ranks``; what does not depend on its bytes is computed once."""

    def __init__(
        self, forms: HardwareTimes, kind: str, ranks: Number, local: Number, congestion: Number
    ) -> None:
        c, nodes = forms.constants, np.maximum(1, ranks / local)
        self.forms, self.kind, self.ranks, self.local, self.congestion = forms, kind, ranks, local, congestion
        self.curve = forms.kernels.all_reduce if kind == "all-reduce" else forms.kernels.all_gather
        exchanges, bus = kind == "all-to-all", 2.0 if kind == "all-reduce" else 1.0
        efficiency = forms.exchange_efficiency if exchanges else c["nic_efficiency"]
        self.nic_bytes_per_s = efficiency * forms.nic_share_bytes_per_s(nodes)
        self.parts = [bus * (count - 1) / count for count in (local, nodes, ranks)]
        across = c["nic_tree_hop_s"] * np.log2(nodes)
        if kind != "all-reduce":
            across = c["nic_ring_hop_s"] * (nodes - 1)
        self.several_nodes, self.shared = nodes > 1, ranks > 1
        self.latency_s = (
            self.curve.latency_s
            + self.curve.latency_per_rank_s * (ranks - nodes if kind in RINGS else local - 1)
            + c["multi_process_latency_s"]
            + np.where(self.several_nodes, c["nic_latency_s"] + across, 0.0)
        )

    def seconds(self, logical_bytes: Number, once: DeduplicatedBytes | None = None) -> Number:
        """Return the seconds of collectives of some bytes; 0 for one rank, and for nothing."""
        moving = (
            self._exchange(logical_bytes, once) if self.kind == "all-to-all" else self._ring(logical_bytes)
        )
        moves = self.shared & (np.asarray(logical_bytes) > 0)
        return np.where(moves, self.latency_s + moving, 0.0)

    def _exchange(self, logical_bytes: Number, once: DeduplicatedBytes | None) -> Number:
        """Return the seconds in which the bytes of an all-to-all move."""
        near, crossing = exchanged(logical_bytes, self.ranks, self.local, once)
        fast = near / self.curve.bandwidth_bytes_per_s * saturation(near, self.curve)
        return np.maximum(fast, self.congestion * crossing / self.nic_bytes_per_s)

    def _ring(self, logical_bytes: Number) -> Number:
        """Return the seconds in which the bytes of any other collective move."""
        c, (of_local, of_nodes, of_ranks) = self.forms.constants, self.parts
        fast = of_local * logical_bytes / self.curve.bandwidth_bytes_per_s
        slow = self.congestion * (of_nodes * logical_bytes / self.local) / self.nic_bytes_per_s
        volume = np.maximum(of_ranks * logical_bytes, 1.0)
        longer = ((volume + c["nic_saturation_bytes"]) / volume) ** c["nic_saturation_power"]
        return np.maximum(fast, slow) * np.where(self.several_nodes, longer, saturation(volume, self.curve))


def exchanged(
    logical_bytes: Number, ranks: Number, local: Number, once: DeduplicatedBytes | None
) -> tuple[Number, Number]:
    """Return the bytes that a rank of an all-to-all moves inside its domain, and to other domains.

    With ``once`` a copy crosses to each domain that a token reaches, to the rank in the sender's place there, which
    hands it on to each rank that has some of the token's experts (DeepEP).
    """
    if once is None:
        return logical_bytes * (local - 1) / ranks, logical_bytes * (ranks - local) / ranks
    domains = ranks / np.asarray(local)
    return once.inside_bytes * (local - 1) / local, once.across_bytes * (domains - 1) / domains


def saturation(volume: Number, curve: Curve) -> Number:
    """Return the factor by which a volume takes longer on a curve than at its plateau."""
    volume = np.maximum(volume, 1.0)
    return ((volume + curve.saturation_bytes) / volume) ** curve.saturation_power


COMPUTE_SPEED = "compute_speed"
"""Name in a calibration: arithmetic and memory of all devices are so many times as fast as without it."""


def hardware_times_for(
    pool: Pool,
    precision: str,
    calibration: Mapping[str, float] = MappingProxyType({}),
    fp8_recipe: Fp8Recipe | None = None,
) -> HardwareTimes:
    """Forms of a pool at a workload's precision; ``calibration`` overrides constants by name."""
    peaks, speed = pool.device.peak_flops, calibration.get(COMPUTE_SPEED, 1.0)
    sixteen = peaks.get("bf16") or peaks.get("fp16") or next(iter(peaks.values()))
    on_own_links = on_links(kernels(pool.device.id), pool.node.scaleup_bytes_per_s)
    return HardwareTimes(
        kernels=calibrated(on_own_links, calibration),
        constants={**constants(), **calibration},
        peak_16bit_flops=speed * sixteen,
        memory_bytes_per_s=speed * pool.device.memory_bytes_per_s,
        scaleup_bytes_per_s=pool.node.scaleup_bytes_per_s,
        nic_bytes_per_s=pool.node.nic_bytes_per_s_per_device,
        domain=usable_domain(pool),
        precision=precision,
        recipe=None if fp8_recipe is None else recipe_cost(fp8_recipe, calibration),
        host_bytes_per_s=pool.node.host_bytes_per_s,
        host_memory_bytes_per_s=pool.host_memory_bytes_per_s,
        synchronous=pool.device.synchronous,
    )


def smooth_maximum(a: Number, b: Number, p: float) -> Number:
    """(aᵖ + bᵖ)^(1/p), scaled so that large p does not underflow."""
    top = np.maximum(a, b)
    return top * ((a / top) ** p + (b / top) ** p) ** (1 / p)
