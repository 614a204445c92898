"""Models that adapters fit on one card, for ``states.py``.

Each line of ``benchmarks/states/adapters.csv`` is a planning question for one device: sequences of 1,024 tokens, 8 of
them in a step, the stack ``generic``, schedule 1F1B, states on the device unless the line says otherwise. The answer is
the fastest plan of the search; of a question without one the least memory that a plan needs is shown.
"""

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from meshwright.errors import InfeasibleError
from meshwright.plans.forms.short import ShortPlan
from meshwright.verbs.plan.plan_on_cluster import PlanAnswer, PlanRequest, answer, setting_of

QUESTIONS = Path(__file__).parent / "states" / "adapters.csv"
ON_DEVICE = ("offload.optimizer=none", "offload.parameters=none")
LEAST = re.compile(r"([0-9.]+) GiB")


@dataclass(frozen=True, slots=True)
class AdapterQuestion:
    """A line of the table of questions."""

    question: str
    model: str
    cluster: str
    adapter: str
    keep: str
    fits: str
    source: str

    @property
    def header(self) -> ShortPlan:
        """The nouns and the workload; without an adapter all parameters train."""
        pairs = dict(setting.split("=") for setting in self.adapter.split())
        workload: dict[str, object] = {"seq_len": 1024, "global_batch": 8}
        if pairs:
            rank = {"rank": int(pairs.pop("rank"))}
            workload |= {"task": "lora", "adapter": {**pairs, **rank}}
        data = {"plan": 1, "model": self.model, "cluster": self.cluster, "workload": workload}
        return ShortPlan.model_validate({**data, "stack": "generic"})

    def best(self) -> PlanAnswer | str:
        """Return the answer of the search, or why nothing fits."""
        keep = ("schedule=1f1b", *(self.keep.split() or ON_DEVICE))
        try:
            return answer(PlanRequest(self.header, keep, top=1, recommend="fastest"))
        except InfeasibleError as error:
            return str(error)

    def is_wrong(self, found: PlanAnswer | str) -> bool:
        """Return whether the search contradicts the line."""
        return (self.fits == "yes") != isinstance(found, PlanAnswer)


def read_questions() -> list[AdapterQuestion]:
    """Read the table of questions."""
    with QUESTIONS.open(encoding="utf-8", newline="") as file:
        return [AdapterQuestion(**row) for row in csv.DictReader(file)]


def adapter_rows(answers: list[tuple[AdapterQuestion, PlanAnswer | str]]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| question | device | fits | GiB | of it parameters | recompute | s per step | source |"
    yield "|---|---|---|--:|--:|---|--:|---|"
    for asked, found in answers:
        device = setting_of(asked.header).cluster.pool.device.id
        if isinstance(found, PlanAnswer):
            best = found.fastest
            memory = best.report.memory_bytes
            held = f"{memory['total'] / 2**30:.2f} | {memory['parameters'] / 2**30:.2f}"
            recompute = best.plan.recompute
            shown = recompute if isinstance(recompute, str) else ", ".join(recompute)
            numbers = f"yes | {held} | {shown} | {best.report.step_time_s:.2f}"
        else:
            least = LEAST.search(found)
            numbers = f"no | {least.group(1) if least else '–'} at least | – | – | –"
        yield f"| {asked.question} | {device} | {numbers} | {asked.source or '–'} |"
