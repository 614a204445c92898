"""The generated parts and pictures of docs/findings.md: what was published of scaling, asked of our model again.

Every figure is predicted here, by the functions that ``meshwright predict`` and ``meshwright plan`` use.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf

from markdown_table import table

from meshwright.errors import InputError
from meshwright.plans.forms.short import ShortLayout, ShortPipeline, ShortPlan, WorkloadSpec
from meshwright.plans.resolve import resolve
from meshwright.plans.setting import Setting
from meshwright.present.svg.line_chart import LineChart, line_chart
from meshwright.search.space.legal_plans import Keep
from meshwright.stack.load import DEFAULT_STACK
from meshwright.verbs.plan.plan_on_cluster import setting_of
from meshwright.verbs.plan.search_space import search, search_scope
from meshwright.verbs.predict.predict_plan import predicted

SHARDED, SHARDED_STACK, SHARDED_LENGTH = "llama-2-7b", "torchtitan", 4096
SHARDED_ON, SHARDED_SIZES, TENSOR_DEGREES = (
    ("h100-sxm-80gb", "a100-sxm-80gb"),
    (128, 256, 512, 1024, 2048),
    (1, 2, 4),
)
FRONTIER_STACK, FRONTIER_LENGTH = "megatron-deepspeed-2022", 2048


@dataclass(frozen=True)
class Frontier:
    """A model on MI250X: its layout, sizes, batch per replica (weak) and in all (strong), published efficiencies."""

    model: str
    pp: int
    sizes: tuple[int, ...]
    per_replica: int
    batch: int
    published_strong: float


FRONTIER = (
    Frontier("gpt-3-175b", 16, (128, 256, 512, 1024), 640, 8000, 0.89),
    Frontier("gpt-1008b", 64, (512, 1024, 1536, 3072), 1600, 8016, 0.87),
)
INSIDE = (
    ("llama-3.1-70b", "h100-sxm-80gb x 128", 8192, 256),
    ("llama-3.1-405b", "h100-sxm-80gb x 1024", 8192, 1024),
    ("gpt-3-175b", "a100-sxm-80gb x 256", 2048, 512),
    ("gpt-529.6b", "a100-sxm-80gb x 560", 2048, 560),
    ("gpt-1008b", "a100-sxm-80gb x 1024", 2048, 1024),
    ("bloom-176b", "a100-sxm-80gb x 192", 2048, 384),
    ("llama-3.1-405b", "gb200 x 288", 8192, 576),
)
STACKS = {"bloom-176b": "megatron-deepspeed-2022"}
"""Stacks of the models that Megatron-Core does not have."""
LENGTHS = (("llama-3.1-8b", "h100-sxm-80gb x 256"), ("llama-3.1-70b", "h100-sxm-80gb x 256"))
TOKENS_PER_STEP, SHORT, LONG = 2**22, 2048, 65_536
GROWING = (
    ("llama-3.2-1b", "h100-sxm-80gb", 8, 4096, 8),
    ("llama-3.1-70b", "h100-sxm-80gb", 64, 8192, 256),
    ("gpt-3-175b", "a100-sxm-80gb", 128, 2048, 256),
    ("mixtral-8x7b", "h100-sxm-80gb", 32, 4096, 128),
    ("gpt-oss-20b", "h100-sxm-80gb", 8, 4096, 8),
)
TIMES = (4, 32)


@cache
def sharded_rate(device: str, devices: int, tp: int) -> float:
    """Tokens per second and device of a 7B model with one sequence per device, all states sharded over the rest."""
    return max(_rates(device, devices, tp))


def _rates(device: str, devices: int, tp: int) -> Iterator[float]:
    for micro_batch in (1, 2, 4):
        for recompute in ("none", "selective", "full"):
            plan = ShortPlan(
                plan=1,
                model=SHARDED,
                cluster=f"{device} x {devices}",
                workload=WorkloadSpec(seq_len=SHARDED_LENGTH, global_batch=devices),
                stack=SHARDED_STACK,
                layout=ShortLayout(dp_shard=devices // tp, tp=tp),
                sharding="zero3",
                pipeline=ShortPipeline(micro_batch=micro_batch),
                recompute=recompute,
            )
            if tp % micro_batch == 0 and (report := predicted(resolve(plan))).fits:
                yield report.tokens_per_s_per_device


def sharded_fall(device: str) -> float:
    """What a device loses of its rate from the smallest to the largest size, as a fraction."""
    return 1 - sharded_rate(device, SHARDED_SIZES[-1], 1) / sharded_rate(device, SHARDED_SIZES[0], 1)


def hardware_scaling() -> str:
    """Rates by device, size and tp."""
    rows = [
        (device, f"tp {tp}", *(f"{sharded_rate(device, size, tp):,.0f}" for size in SHARDED_SIZES))
        for device in SHARDED_ON
        for tp in TENSOR_DEGREES
    ]
    falls = ", ".join(f"{sharded_fall(device):.0%} on {device}" for device in SHARDED_ON)
    wins = [
        f"{device}: {size:,}"
        for device in SHARDED_ON
        for size in SHARDED_SIZES
        if max(sharded_rate(device, size, tp) for tp in TENSOR_DEGREES[1:]) > sharded_rate(device, size, 1)
    ]
    ratios = "; ".join(
        f"{device} {_beside(device, SHARDED_SIZES[0]):.3f} → {_beside(device, SHARDED_SIZES[-1]):.3f}"
        for device in SHARDED_ON
    )
    found = (
        f"Tokens per second and device, predicted. From {SHARDED_SIZES[0]} to {SHARDED_SIZES[-1]:,} devices a device "
        f"loses {falls}. tp > 1 is quicker at: {', '.join(wins) or 'none of these sizes'}. The rate with tp 2 over "
        f"that with tp 1: {ratios}."
    )
    return table(("device", "plan", *(f"{size:,}" for size in SHARDED_SIZES)), rows) + f"\n{found}\n"


def _beside(device: str, size: int) -> float:
    return sharded_rate(device, size, 2) / sharded_rate(device, size, 1)


@cache
def frontier_rate(case: Frontier, devices: int, batch: int) -> float:
    """Tokens per second and device of a model on Frontier."""
    plan = ShortPlan(
        plan=1,
        model=case.model,
        cluster=f"mi250x x {devices}",
        workload=WorkloadSpec(seq_len=FRONTIER_LENGTH, global_batch=batch),
        stack=FRONTIER_STACK,
        layout=ShortLayout(pp=case.pp, tp=8, dp_shard=_replicas(case, devices), sequence_parallel=False),
        sharding="zero1" if _replicas(case, devices) > 1 else "none",
        recompute="full",
    )
    return predicted(resolve(plan)).tokens_per_s_per_device


def _replicas(case: Frontier, devices: int) -> int:
    return devices // (8 * case.pp)


def frontier_efficiency(case: Frontier, devices: int, *, weak: bool) -> float:
    """The rate of a device over that at the smallest size."""
    batch = case.per_replica * _replicas(case, devices) if weak else case.batch
    first = case.per_replica * _replicas(case, case.sizes[0]) if weak else case.batch
    return frontier_rate(case, devices, batch) / frontier_rate(case, case.sizes[0], first)


def frontier() -> str:
    """Weak and strong scaling of both models."""
    rows = []
    for case in FRONTIER:
        for weak in (True, False):
            cells = [f"{size:,}: {frontier_efficiency(case, size, weak=weak):.1%}" for size in case.sizes]
            published = "100%" if weak else f"{case.published_strong:.0%}"
            rows.append((case.model, "weak" if weak else "strong", "; ".join(cells), published))
    return table(("model", "scaling", "devices: predicted efficiency", "published at the largest"), rows)


@cache
def best_s(
    question: tuple[str, str, int, int], keep: tuple[tuple[str, int], ...] = ()
) -> tuple[float, dict[str, int]]:
    """Seconds of the best plan under what is kept, and its degrees; infinite where none fits."""
    setting = _setting(question)
    kept: Keep = dict(keep)
    try:
        found = search(search_scope(kept, None, 1, setting), setting)[1]
    except InputError:
        return inf, {}
    if not len(found.ranking):
        return inf, {}
    row = found.top(1)[0]
    return float(found.step_s[row]), {
        name: int(getattr(found.plans, name)[row]) for name in ("tp", "pp", "cp")
    }


def domain_of(question: tuple[str, str, int, int]) -> int:
    """Devices of a scale-up domain of a question's cluster."""
    return _setting(question).cluster.pool.node.scaleup_domain


def _setting(question: tuple[str, str, int, int]) -> Setting:
    model, cluster, seq_len, batch = question
    workload = WorkloadSpec(seq_len=seq_len, global_batch=batch)
    stack = STACKS.get(model, DEFAULT_STACK)
    return setting_of(ShortPlan(plan=1, model=model, cluster=cluster, workload=workload, stack=stack))


def inside(question: tuple[str, str, int, int]) -> tuple[int, float]:
    """The tp and the seconds of the best plan whose tp, a power of two, stays in a scale-up domain."""
    degrees = [2**power for power in range(10) if 2**power <= domain_of(question)]
    seconds = {tp: best_s(question, (("tp", tp),))[0] for tp in degrees}
    best = min(seconds, key=lambda tp: seconds[tp])
    return best, seconds[best]


def crossing(question: tuple[str, str, int, int]) -> tuple[int, float]:
    """The first tp of a power of two that leaves a scale-up domain, and what its best plan takes more than inside."""
    tp = 1
    while tp <= domain_of(question):
        tp *= 2
    return tp, best_s(question, (("tp", tp),))[0] / inside(question)[1] - 1


def tensor_inside() -> str:
    """The best plan's tp beside the size of a node."""
    rows = []
    for question in INSIDE:
        within, seconds = inside(question)
        tp, more = crossing(question)
        cost = "no plan" if more == inf else f"tp {tp}: {more:+.1%}"
        rows.append((question[0], question[1], domain_of(question), within, f"{seconds:.2f} s", cost))
    return table(
        ("model", "cluster", "scale-up domain", "best tp inside", "step", "the best that crosses"), rows
    )


def four_gain(model: str, cluster: str, seq_len: int) -> float:
    """What the best plan of all gains over the best without context parallelism, as a fraction of its time."""
    question = (model, cluster, seq_len, TOKENS_PER_STEP // seq_len)
    return best_s(question, (("cp", 1),))[0] / best_s(question)[0] - 1


def four_dimensions() -> str:
    """What a fourth dimension is worth at short and long sequences."""
    rows = []
    for model, cluster in LENGTHS:
        for seq_len in (SHORT, LONG):
            question = (model, cluster, seq_len, TOKENS_PER_STEP // seq_len)
            degrees = best_s(question)[1]
            gain = four_gain(model, cluster, seq_len)
            told = "does not fit" if gain == inf else f"{gain:+.1%}"
            rows.append((model, cluster, f"{seq_len:,}", *(degrees[n] for n in ("tp", "pp", "cp")), told))
    return table(("model", "cluster", "sequence", "best tp", "pp", "cp", "the best with cp 1"), rows)


def growth_of(model: str, device: str, devices: int, seq_len: int, batch: int, times: int) -> float:
    """What so many times the devices do of so many times the batch, per device, over what the fewest do."""
    one = best_s((model, f"{device} x {devices}", seq_len, batch))[0]
    return one / best_s((model, f"{device} x {times * devices}", seq_len, times * batch))[0]


def growth() -> str:
    """Best plans of more and more devices, the batch per device alike."""
    rows = [
        (model, f"{device} x {devices}", batch, *(f"{growth_of(*case, times):.1%}" for times in TIMES))
        for case in GROWING
        for model, device, devices, _, batch in [case]
    ]
    return table(("model", "from", "batch", *(f"× {times}" for times in TIMES)), rows)


def charts() -> dict[str, str]:
    """File name → SVG."""
    rates = {
        f"{device.partition('-')[0]}, tp {tp}": _points(device, tp)
        for device in SHARDED_ON
        for tp in TENSOR_DEGREES
    }
    efficiencies: dict[str, Sequence[tuple[float, float]]] = {}
    for case in FRONTIER:
        for name, weak in (("weak", True), ("strong", False)):
            line = [(size, 100 * frontier_efficiency(case, size, weak=weak)) for size in case.sizes]
            efficiencies[f"{case.model}, {name}"] = line
        ends = [(case.sizes[0], 100.0), (case.sizes[-1], 100 * case.published_strong)]
        efficiencies[f"published: {case.model}, strong"] = ends
    return {
        "hardware-scaling.svg": _over_devices(
            "7B, one sequence of 4,096 per device", "tokens per second and device", rates
        ),
        "frontier.svg": _over_devices("Scaling on MI250X", "efficiency, %", efficiencies),
    }


def _over_devices(title: str, up: str, lines: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    return line_chart(LineChart(title=title, across="devices", up=up, lines=lines, logarithmic=True))


def _points(device: str, tp: int) -> list[tuple[float, float]]:
    return [(size, sharded_rate(device, size, tp)) for size in SHARDED_SIZES]
