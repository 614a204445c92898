"""Tables of the pages on concepts: each formula with its numbers on a chip, computed by the cost model.

Plans are the same but for what a table is about, so that its rows differ by one choice.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from markdown_table import table

from meshwright import api
from meshwright.cluster.load import load_cluster
from meshwright.cost.operators.kernel_and_collective_times import HardwareTimes, hardware_times_for
from meshwright.result import Report
from meshwright.units import GIB, format_seconds
from meshwright.verbs.schedule.schedule_request import ScheduleRequest

DEVICE, NODE = "h100-sxm-80gb", 8
STACK = "megatron-core"
KIB, MIB = 2**10, 2**20


def training_state_table() -> str:
    """Bytes of the states of Llama-3.1-8B on each of 8 devices, by the ZeRO level."""
    kinds = ("parameters", "gradients", "optimizer", "buffers")
    rows = []
    for level in ("none", "zero1", "zero2", "zero3"):
        report = _predicted(stack="meshwright", sharding=level, recompute="full")
        sizes = [report.memory_bytes[kind] / GIB for kind in kinds]
        rows.append((f"`{level}`", *(f"{size:.1f}" for size in sizes), f"{sum(sizes):.1f}"))
    return table(("sharding", *(f"{kind}, GiB" for kind in kinds), "together, GiB"), rows)


def activation_table() -> str:
    """Activations and step time of Llama-3.1-8B by what is recomputed."""
    rows = []
    for recompute in ("none", "selective", "full"):
        report = _predicted(sharding="zero3", stack="torchtitan", recompute=recompute)
        activations = report.memory_bytes["activations"] / GIB
        rows.append(
            (f"`{recompute}`", f"{activations:.1f}", format_seconds(report.step_time_s), _hfu(report))
        )
    return table(("recompute", "activations, GiB", "step", "FLOPs over those of the model"), rows)


def matrix_product_table() -> str:
    """Seconds of the product of m tokens with a weight of 4,096 × 14,336, and the share of the peak."""
    times = _times(1)
    rows = []
    for m in (1, 16, 128, 512, 2048, 8192):
        seconds = float(times.gemm(m, 4096, 14336))
        rate = 2.0 * m * 4096 * 14336 / seconds
        rows.append(
            (f"{m:,}", format_seconds(seconds), f"{rate / 1e12:,.0f}", f"{rate / times.peak_16bit_flops:.0%}")
        )
    return table(("tokens m", "time", "TFLOP/s", "of the peak"), rows)


def collective_table() -> str:
    """Seconds of collectives of 8 devices in a node, and of 16 in two nodes."""
    rows = []
    for size, name in ((64 * KIB, "64 KiB"), (4 * MIB, "4 MiB"), (256 * MIB, "256 MiB"), (2**30, "1 GiB")):
        seconds = [
            float(_times(nodes).collective(kind, float(size), nodes * NODE, NODE))
            for kind in ("all-reduce", "all-gather", "all-to-all")
            for nodes in (1, 2)
        ]
        rows.append((name, *map(format_seconds, seconds)))
    heads = [f"{kind}, {count}" for kind in ("all-reduce", "all-gather", "all-to-all") for count in (8, 16)]
    return table(("bytes", *heads), rows)


def bubble_table() -> str:
    """The bubble of schedules on 8 ranks by the number of micro-batches, backward passes twice as long as forward."""
    schedules = (("1f1b", None), ("interleaved-1f1b", 4), ("zb-h1", None), ("zb-v", None))
    rows = []
    for name, chunks in schedules:
        found = [
            api.schedule(
                name, ScheduleRequest(stages=8, micro_batches=count, chunks=chunks)
            ).figures.bubble_rate
            for count in (8, 16, 64)
        ]
        rows.append(
            (
                f"`{name}`" + (f", {chunks} stages a rank" if chunks else ""),
                *(f"{rate:.1%}" for rate in found),
            )
        )
    return table(("schedule", "8 micro-batches", "16", "64"), rows)


def axis_table() -> str:
    """A step of Llama-3.1-70B on 64 devices, all layers recomputed, by the axes that cut the model."""
    layouts: tuple[tuple[str, dict[str, Any]], ...] = (
        ("tp 8", {"layout": {"dp_shard": 8, "tp": 8}}),
        ("pp 8", {"layout": {"dp_shard": 8, "pp": 8}}),
        ("pp 4, tp 2", {"layout": {"dp_shard": 8, "pp": 4, "tp": 2}}),
        ("pp 2, tp 2, cp 2", {"layout": {"dp_shard": 8, "pp": 2, "tp": 2, "cp": 2}}),
        ("zero3 over 64", {"layout": {"dp_shard": 64}, "sharding": "zero3", "stack": "torchtitan"}),
    )
    rows = []
    for name, changes in layouts:
        plan = {"sharding": "zero1", "recompute": "full", **changes}
        report = _predicted(
            model="llama-3.1-70b",
            cluster=f"{DEVICE} x 64",
            workload={"seq_len": 8192, "global_batch": 256},
            **plan,
        )
        parts = [report.breakdown_s.get(part, 0.0) for part in ("tp", "cp", "dp", "pp", "bubble")]
        rows.append(
            (name, format_seconds(report.step_time_s), *(_share(p, report) for p in parts), _fits(report))
        )
    return table(("layout", "step", "tp", "cp", "dp", "pp", "bubble", "fits"), rows)


def expert_table() -> str:
    """A step of Qwen3-30B-A3B on 16 devices by the degree of expert parallelism."""
    rows = []
    for ep in (1, 2, 8, 16):
        report = _predicted(
            model="qwen3-30b-a3b",
            cluster=f"{DEVICE} x 16",
            workload={"seq_len": 4096, "global_batch": 64},
            layout={"dp_shard": 16, "ep": ep},
            sharding="zero1",
            recompute="full",
        )
        states = sum(report.memory_bytes[kind] for kind in ("parameters", "gradients", "optimizer")) / GIB
        exposed = report.breakdown_s.get("ep", 0.0)
        rows.append(
            (ep, format_seconds(report.step_time_s), _share(exposed, report), f"{states:.1f}", _fits(report))
        )
    return table(("ep", "step", "exchanges of tokens", "states, GiB", "fits"), rows)


def money_and_energy_table() -> str:
    """Time, money and energy of 100 billion tokens of Llama-3.1-8B on growing clusters."""
    rows = []
    for devices in (16, 64, 256, 1024):
        found = api.plan(
            "llama-3.1-8b", on=f"{DEVICE} x {devices}", seq_len=8192, global_batch=1024, top=1, tokens="100B"
        )
        report = found.proposals[0].report
        training = report.training or {}
        usd, days = training["usd"]["value"], training["days"]["value"]
        joules = report.joules_per_step or 0.0
        energy = joules * 1e11 / (8192 * 1024) / 3.6e9
        rows.append(
            (f"{devices:,}", f"{days:.1f}", f"${usd:,.0f}", f"{energy:.1f}", f"{report.mfu or 0:.0%}")
        )
    return table(("devices", "days", "money", "MWh at most", "MFU"), rows)


def _share(seconds: float, report: Report) -> str:
    return f"{seconds / report.step_time_s:.1%}"


def _fits(report: Report) -> str:
    return "yes" if report.fits else "no"


def _hfu(report: Report) -> str:
    assert report.hfu is not None
    assert report.mfu is not None
    return f"{report.hfu / report.mfu:.2f}"


def _predicted(**changes: Any) -> Report:
    plan = {
        "plan": 1,
        "model": "llama-3.1-8b",
        "cluster": f"{DEVICE} x {NODE}",
        "workload": {"seq_len": 8192, "global_batch": 64},
        "stack": STACK,
        "layout": {"dp_shard": NODE},
        "recompute": "none",
    }
    if changes.get("sharding") == "none" and "layout" not in changes:
        plan["layout"] = {"dp_replicate": NODE}
    return api.predict({**plan, **changes})


@cache
def _times(nodes: int) -> HardwareTimes:
    cluster = load_cluster(f"{DEVICE} x {nodes * NODE}")
    return hardware_times_for(cluster.pool, "bf16")


SECTIONS: dict[str, Callable[[], str]] = {
    "concept-training-state": training_state_table,
    "concept-activations": activation_table,
    "concept-matrix-products": matrix_product_table,
    "concept-collectives": collective_table,
    "concept-bubble": bubble_table,
    "concept-axes": axis_table,
    "concept-experts": expert_table,
    "concept-money": money_and_energy_table,
}
