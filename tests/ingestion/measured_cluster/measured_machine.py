"""Measurements of a machine whose constants are hidden from the fit: its times are what the forms say."""

import numpy as np

from meshwright.cluster.load import load_cluster
from meshwright.cost.operators.kernel_and_collective_times import hardware_times_for
from meshwright.measurement.rank_groups import collective_rounds, pair_rounds
from meshwright.measurement.results import KernelTime, Machine, Results

PRODUCTS = (
    (16, 8192, 8192),
    (128, 4096, 4096),
    (1024, 4096, 4096),
    (4096, 4096, 14336),
    (8192, 4096, 14336),
    (8192, 8192, 8192),
)
ATTENTIONS = ((16, 32, 1024, 128), (4, 32, 4096, 128), (1, 32, 16384, 128))
CLASSES = {"flash": "flash", "cudnn": "flash3"}
SIZES = tuple(4096 * 4**power for power in range(10))
H100 = "NVIDIA H100 80GB HBM3"


def measured(hidden=None, *, nodes=2, devices=8, noise=0.0, seed=0, slow_rank=None, **of_machine):
    """Results on nodes of H100s whose bare constants are ``hidden``; ``slow_rank`` takes three times as long."""
    forms = hardware_times_for(load_cluster(f"h100-sxm-80gb x {nodes * devices}").pool, "bf16", hidden or {})
    random = np.random.default_rng(seed)
    hosts = tuple(f"host{node}" for node in range(nodes) for _ in range(devices))
    rounds = [*collective_rounds(hosts), *pair_rounds(hosts, 4)]
    return Results(
        machine=machine(hosts, **of_machine),
        kernels=tuple(_kernels(forms, len(hosts), noise, random, slow_rank)),
        groups=tuple(group for played in rounds for group in played.groups),
        collectives=tuple(
            _collective(forms, group, kind, size, random.lognormal(0, noise))
            for played in rounds
            for group in played.groups
            for kind, size in _sweep(played.scope)
        ),
        budget_s=60.0,
        took_s=60.0,
    )


def machine(hosts, name=H100, kind="cuda", memory=84_929_000_000):
    return Machine(
        device_kind=kind,
        device_names=(name,) * len(hosts),
        hosts=hosts,
        memory_bytes=(memory,) * len(hosts),
        threads_per_device=8,
        backend="nccl" if kind == "cuda" else "gloo",
        torch="2.13.0",
        date="2026-11-21",
    )


def _sweep(scope):
    if scope.endswith("pair"):
        return [("send-recv", 2**26)]
    return [(kind, size) for kind in ("all-reduce", "all-gather", "reduce-scatter") for size in SIZES]


def _collective(forms, group, kind, size, factor):
    if kind == "send-recv":
        seconds = float(forms.p2p(size, group.nodes > 1))
    else:
        seconds = float(forms.collective(kind, size, len(group.ranks), group.local))
    return group.took(kind, size, seconds * factor, repeats=20)


def _kernels(forms, ranks, noise, random, slow_rank):
    for kind, kernel, shape, moved, seconds in _times(forms):
        times = seconds * random.lognormal(0, noise, ranks)
        if slow_rank is not None:
            times[slow_rank] *= 3
        yield KernelTime(
            kind=kind,
            dtype="bf16",
            kernel=kernel,
            shape=shape,
            flops=2.0 * np.prod(shape).item() if kind == "matmul" else 1.0,
            moved_bytes=moved,
            seconds=tuple(times.tolist()),
            spread_s=(0.0,) * ranks,
            repeats=50,
        )


def _times(forms):
    for m, k, n in PRODUCTS:
        yield "matmul", "", (m, k, n), 2.0 * (m * k + k * n + m * n), float(forms.gemm(m, k, n))
    for kernel, name in CLASSES.items():
        for b, h, s, d in ATTENTIONS:
            flops, moved = 2.0 * b * h * s * s * d, 8.0 * b * h * s * d
            forward = float(forms.flash(flops, moved, name))
            ratio = forms.constants["attention_backward_efficiency"]
            backward = float(forms.flash(2.5 * flops, 2 * moved, name, ratio))
            yield "attention", kernel, (b, h, s, d), moved, forward
            yield "attention-step", kernel, (b, h, s, d), 3 * moved, forward + backward
    yield "pass", "", (10**8,), 1.2e9, float(forms.pass_(1.2e9))
    yield "launch", "", (1,), 8.0, 5e-6
