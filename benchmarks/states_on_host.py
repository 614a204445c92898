"""Models that train with their optimizer's states on the host, and their speed, for ``states.py``.

Each line of ``benchmarks/states/host.csv`` is a planning question and what is published of it. The answer is the
fastest plan of the search; a question without one does not fit.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from meshwright.errors import InfeasibleError
from meshwright.plans.forms.short import ShortPlan
from meshwright.result import Report
from meshwright.units import TERA
from meshwright.verbs.plan.plan_on_cluster import PlanRequest, answer, setting_of

FOLDER = Path(__file__).parent / "states"
QUESTIONS = FOLDER / "host.csv"
TOLERANCE = 0.2
"""How far a predicted rate may be from the published one, as a part of it."""


@dataclass(frozen=True, slots=True)
class HostQuestion:
    """A line of the table of questions."""

    question: str
    model: str
    cluster: str
    stack: str
    global_batch: str
    seq_len: str
    keep: str
    published_fits: str
    published_tflops: str
    source: str
    assumed: str

    @property
    def header(self) -> ShortPlan:
        """The nouns and the workload; V100 have no bf16."""
        model = str(FOLDER / self.model) if self.model.endswith(".json") else self.model
        workload: dict[str, object] = {"seq_len": int(self.seq_len), "global_batch": int(self.global_batch)}
        workload["precision"] = "fp16" if self.cluster.startswith("v100") else "bf16"
        data = {"plan": 1, "model": model, "cluster": self.cluster, "workload": workload}
        return ShortPlan.model_validate({**data, "stack": self.stack})

    def best(self) -> Report | None:
        """Return the report of the fastest plan; None where none fits."""
        try:
            found = answer(PlanRequest(self.header, tuple(self.keep.split()), top=1, recommend="fastest"))
        except InfeasibleError:
            return None
        return found.fastest.report

    def tflops(self, share: float | None) -> float:
        """Return the TFLOP/s of a device at a share of its peak."""
        peak = setting_of(self.header).cluster.pool.device.peak_flops[self.header.workload.precision]
        return (share or 0.0) * peak / TERA

    def is_wrong(self, best: Report | None) -> bool:
        """Return true where the answer is not the published one."""
        if (best is not None) != (self.published_fits == "yes"):
            return True
        if not self.published_tflops or best is None:
            return False
        published = float(self.published_tflops)
        return abs(self.tflops(best.mfu) - published) > TOLERANCE * published


def read_questions() -> list[HostQuestion]:
    """Return the questions of the file."""
    with QUESTIONS.open(encoding="utf-8", newline="") as file:
        return [HostQuestion(**row) for row in csv.DictReader(file)]


def host_rows(answers: list[tuple[HostQuestion, Report | None]]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield (
        "| question | kept | fits | s per step | TFLOP/s | with recomputation | GiB a device | GiB a host "
        "| published | source | assumed |"
    )
    yield "|---|---|---|--:|--:|--:|--:|--:|---|---|---|"
    for asked, best in answers:
        published = asked.published_fits if asked.source else "–"
        published += f", {asked.published_tflops} TFLOP/s" if asked.published_tflops else ""
        ends = f"{published} | {asked.source or '–'} | {asked.assumed or '–'} |"
        if best is None:
            yield f"| {asked.question} | {asked.keep} | no | – | – | – | – | – | {ends}"
            continue
        memory = best.memory_bytes
        rates = asked.tflops(best.mfu), asked.tflops(best.hfu)
        gib = memory["total"] / 2**30, memory.get("host", 0) / 2**30
        numbers = f"{best.step_time_s:.1f} | {rates[0]:.1f} | {rates[1]:.1f} | {gib[0]:.1f} | {gib[1]:.0f}"
        yield f"| {asked.question} | {asked.keep} | yes | {numbers} | {ends}"
