"""What ``meshwright measure`` would write of a machine that is the cost model with hidden constants.

Bare kernels are faster than those in a step: the machine's bare constants are its hidden ones over what training keeps
of a bare kernel (``ingestion/measured_cluster/kernel_constants.py``), times a draw of its own, for no two machines
keep the same. Every time has noise. Shapes, groups and sizes are those that ``measure`` takes.
"""

from collections.abc import Iterator, Mapping

import numpy as np

from meshwright.cluster.cluster import Cluster
from meshwright.cost.constants import kernels
from meshwright.cost.operators.kernel_and_collective_times import HardwareTimes, hardware_times_for
from meshwright.ingestion.measured_cluster.kernel_constants import (
    BACKWARD,
    CLASSES,
    HBM,
    present_value,
    training_fraction,
)
from meshwright.measurement.rank_groups import GroupRound, collective_rounds, pair_rounds
from meshwright.measurement.results import CollectiveTime, Group, KernelTime, Machine, Results

NAMES = {"h100-sxm-80gb": "NVIDIA H100 80GB HBM3", "a100-sxm-80gb": "NVIDIA A100-SXM4-80GB"}
PRODUCTS = (
    (1024, 4096, 4096),
    (4096, 4096, 14336),
    (8192, 4096, 14336),
    (8192, 8192, 8192),
    (16384, 8192, 8192),
)
ATTENTIONS = ((16, 32, 1024, 128), (4, 32, 4096, 128), (1, 32, 16384, 128))
PASS_BYTES, LAUNCH_S = 1.2e9, 5e-6
SIZES = tuple(4096 * 4**power for power in range(10))
SWEPT = ("all-reduce", "all-gather", "reduce-scatter")
KEPT = (0.9, 1.1)
"""How far what one machine's training keeps of a bare kernel may be from the usual; drawn evenly."""
REPEATS = 20


def synthetic_results(
    cluster: Cluster, hidden: Mapping[str, float], noise: float, rng: np.random.Generator
) -> Results:
    """The results of a cluster whose constants in training are ``hidden``."""
    pool = cluster.pool
    forms = hardware_times_for(pool, "bf16", _bare(pool.device.id, hidden, rng))
    hosts = tuple(f"host{rank // pool.node.devices}" for rank in range(pool.count))
    rounds = (*collective_rounds(hosts), *pair_rounds(hosts, 4))
    return Results(
        machine=_machine(pool.device.id, hosts, pool.device.memory_bytes),
        kernels=tuple(_kernels(forms, pool.device.id, len(hosts), noise, rng)),
        groups=tuple(group for played in rounds for group in played.groups),
        collectives=tuple(_collectives(forms, rounds, noise, rng)),
        budget_s=300.0,
        took_s=300.0,
    )


def _bare(device: str, hidden: Mapping[str, float], rng: np.random.Generator) -> dict[str, float]:
    """Constants of bare kernels and of links."""
    family = kernels(device)
    attention = {f"attention_efficiency.{kind}": value for kind, value in family.attention_efficiency.items()}
    usual = {name: present_value(name, device) for name in ("gemm_efficiency", HBM, BACKWARD)} | attention
    inside = usual | {name: value for name, value in hidden.items() if name in usual}
    bare = {
        name: value / (training_fraction(name, device) * rng.uniform(*KEPT)) for name, value in inside.items()
    }
    return bare | {"nic_efficiency": hidden["nic_efficiency"]}


def _machine(device: str, hosts: tuple[str, ...], memory_bytes: float) -> Machine:
    return Machine(
        device_kind="cuda",
        device_names=(NAMES[device],) * len(hosts),
        hosts=hosts,
        memory_bytes=(int(memory_bytes),) * len(hosts),
        threads_per_device=8,
        backend="nccl",
        torch="2.13.0",
        date="2026-01-01",
    )


def _kernels(
    forms: HardwareTimes, device: str, ranks: int, noise: float, rng: np.random.Generator
) -> Iterator[KernelTime]:
    for kind, kernel, shape, flops, moved, exact in _times(forms, device):
        seconds = exact * rng.lognormal(0, noise)
        yield KernelTime(
            kind=kind,
            dtype="bf16",
            kernel=kernel,
            shape=shape,
            flops=flops,
            moved_bytes=moved,
            seconds=tuple((seconds * rng.lognormal(0, noise, ranks)).tolist()),
            spread_s=(noise * seconds,) * ranks,
            repeats=REPEATS,
        )


def _times(forms: HardwareTimes, device: str):  # type: ignore[no-untyped-def]
    """Kind, attention kernel, shape, FLOPs, bytes and seconds of every kernel."""
    for m, k, n in PRODUCTS:
        moved = 2.0 * (m * k + k * n + m * n)
        yield "matmul", "", (m, k, n), 2.0 * m * k * n, moved, float(forms.gemm(m, k, n))
    c = forms.constants
    for kernel, name in CLASSES.items():
        if name not in kernels(device).attention_efficiency:
            continue
        for b, h, s, d in ATTENTIONS:
            flops, moved = 2.0 * b * h * s * s * d, 8.0 * b * h * s * d
            forward = float(forms.flash(flops, moved, name))
            back = c["attention_backward_flops"]
            backward = float(forms.flash(flops * back, 2 * moved, name, c[BACKWARD]))
            yield "attention", kernel, (b, h, s, d), flops, moved, forward
            yield "attention-step", kernel, (b, h, s, d), flops * (1 + back), 3 * moved, forward + backward
    yield "pass", "", (int(PASS_BYTES / 12),), 1.0, PASS_BYTES, float(forms.pass_(PASS_BYTES))
    yield "launch", "", (1,), 1.0, 8.0, LAUNCH_S


def _collectives(
    forms: HardwareTimes, rounds: tuple[GroupRound, ...], noise: float, rng: np.random.Generator
) -> Iterator[CollectiveTime]:
    for played in rounds:
        pairs = played.scope.endswith("pair")
        sweep = [("send-recv", 2**26)] if pairs else [(kind, size) for kind in SWEPT for size in SIZES]
        for group in played.groups:
            for kind, size in sweep:
                seconds = _seconds(forms, group, kind, size) * rng.lognormal(0, noise)
                yield group.took(kind, size, seconds, REPEATS)


def _seconds(forms: HardwareTimes, group: Group, kind: str, size: int) -> float:
    if kind == "send-recv":
        return float(forms.p2p(size, group.nodes > 1))
    return float(forms.collective(kind, size, len(group.ranks), group.local))
