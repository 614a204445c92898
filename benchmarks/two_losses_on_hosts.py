"""Steps of OPT-175B without backward passes, with parameters in host memory: one device, and several (DistZO2)."""

from collections.abc import Iterator
from dataclasses import dataclass

from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.resolve import resolve
from meshwright.simulate.plan_estimate import lower_and_simulate

MODEL, DEVICE, SEQ_LEN = "gpt-3-175b", "a100-sxm-80gb", 2048
PUBLISHED = 3.0
"""DistZO2's speed-up over one device that offloads (arXiv 2507.03211, abstract); its devices and batch are not known
here."""
SPLIT = {"name": "zo-sgd", "perturbations": "split"}
BATCHES = (2, 4, 16)
"""Sequences of a step."""


@dataclass(frozen=True)
class Devices:
    """``count`` devices of a node; of each loss ``shards`` fetch a part of every block."""

    count: int
    shards: int

    def step_s(self, batch: int) -> float:
        """Return the simulated seconds of a step of so many sequences."""
        replicas = self.count // self.shards
        data: dict[str, object] = {
            "plan": 1,
            "model": MODEL,
            "cluster": f"{DEVICE} x {self.count}",
            "workload": {
                "task": "sft",
                "seq_len": SEQ_LEN,
                "global_batch": batch,
                "optimizer": SPLIT if replicas > 1 else "zo-sgd",
            },
            "stack": "generic",
            "layout": {"dp_replicate": replicas, "dp_shard": self.shards},
            "pipeline": {"micro_batch": batch // self.shards},
            "offload": {"parameters": "all"},
        }
        data |= {"sharding": "zero3", "gather": "per-layer"} if self.shards > 1 else {}
        plan = resolve(ShortPlan.model_validate(data))
        _, simulation = lower_and_simulate(plan.long, plan.setting)
        return float(simulation.step_s)


ALONE, PAIR, FOUR = Devices(1, 1), Devices(2, 1), Devices(4, 2)
TEXT = {
    ALONE: "one device computes both losses",
    PAIR: "two devices compute one loss each",
    FOUR: "four: two for each loss, which fetch a half of every block and gather it",
}


def two_loss_rows() -> Iterator[str]:
    """Yield the lines of the table: a step's seconds, and how many times quicker it is than one device's."""
    yield "| devices | " + " | ".join(f"s per step of {batch} | times one device" for batch in BATCHES) + " |"
    yield "|---|" + "--:|" * (2 * len(BATCHES))
    alone = [ALONE.step_s(batch) for batch in BATCHES]
    for devices, text in TEXT.items():
        steps = [devices.step_s(batch) for batch in BATCHES]
        cells = (f"{step:.1f} | {one / step:.2f}" for step, one in zip(steps, alone, strict=True))
        yield f"| {text} | {' | '.join(cells)} |"


def two_loss_section(table: str) -> str:
    """Return the section of the page."""
    return f"""## Two losses with parameters on the host

OPT-175B's shape (GPT-3's) trained by [zo-sgd](../docs/plans.md#forward-passes-only) with all parameters in host memory,
simulated. Published is {PUBLISHED:g} times one device that offloads (DistZO2, arXiv 2507.03211). Its devices, batch and
sequences are not known here; assumed are A100-80GB with PCIe 4.0 in one node, sequences of {SEQ_LEN} tokens in one
micro-batch a loss, and that a block is fetched for each forward pass and once more, both ways, for the update.

{table}

With few sequences all devices wait for the host link: one device moves all parameters three times, each of four moves
a half of them twice. ZO2 computes both losses of a block while it is on the device, and fetches it once; a plan has no
word for that. Such a device would move all parameters once, and four would only be quicker where it waits for its own
compute."""
