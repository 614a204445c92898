"""Bytes of states per parameter under usual recipes, and models that train with states on the host.

    python benchmarks/states.py            prints the table
    python benchmarks/states.py --write    also writes benchmarks/states.md

Each line of ``benchmarks/states/recipes.csv`` is a stack, a precision and what a plan for it writes under ``dtypes``.
The bytes are those of the memory ledger of a plan on one device without sharding, divided by its parameters. The lines
of ``host.csv`` are questions to the search (``states_on_host.py``). Exits with 1 where a published number differs.
"""

import csv
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from states_on_host import host_rows, read_questions

from meshwright import __version__
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.resolve import Resolved, resolve
from meshwright.program.lowering.lower_plan import lower
from meshwright.program.model_states.state_elements import STATE_KINDS
from meshwright.stack.state_types import types_of

RECIPES = Path(__file__).parent / "states" / "recipes.csv"
MODEL, CLUSTER = "llama-3.1-8b", "b200 x 1"


@dataclass(frozen=True, slots=True)
class Recipe:
    """A line of the table of recipes."""

    recipe: str
    stack: str
    precision: str
    dtypes: str
    published_bytes: str
    source: str

    @property
    def written(self) -> dict[str, str]:
        """What a plan writes under ``dtypes``."""
        pairs = (setting.split("=") for setting in self.dtypes.split())
        return dict(pairs)

    def resolved(self) -> Resolved:
        """Return the recipe's plan, on one device."""
        usual = "zero1" if self.written else "none"
        sharding = {"torchtitan": "zero3", "accelerate": "zero3"}.get(self.stack, usual)
        data: dict[str, object] = {
            "plan": 1,
            "model": MODEL,
            "cluster": CLUSTER,
            "workload": {"seq_len": 2048, "global_batch": 8, "precision": self.precision},
            "stack": self.stack,
            "layout": {},
            "sharding": sharding,
        }
        return resolve(ShortPlan.model_validate(data | ({"dtypes": self.written} if self.written else {})))


def bytes_per_parameter(plan: Resolved) -> dict[str, float]:
    """Return the bytes of each kind of state over the number of parameters, on one device."""
    setting = plan.setting
    program = lower(plan.long, setting.model, setting.cluster, setting.workload, setting.stack)
    count = program.held_elements(0, "parameter")
    return {kind: program.held_bytes(0, kind) / count for kind in STATE_KINDS}


def rows(recipes: list[Recipe]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| recipe | stack | precision | dtypes | parameter | gradient | optimizer | all | published | source |"
    yield "|---|---|---|---|--:|--:|--:|--:|--:|---|"
    for recipe in recipes:
        plan = recipe.resolved()
        held = bytes_per_parameter(plan)
        stack, precision = plan.setting.stack, recipe.precision
        types = types_of(stack, precision, recipe.written).to_data()
        shown = (
            ", ".join(f"{key} {word}" for key, word in types.items() if key in recipe.written) or "as usual"
        )
        numbers = " | ".join(f"{value:.2f}" for value in (*held.values(), sum(held.values())))
        yield (
            f"| {recipe.recipe} | {stack.id} | {precision} | {shown} | {numbers} "
            f"| {recipe.published_bytes or '–'} | {recipe.source or '–'} |"
        )


def wrong(recipes: list[Recipe]) -> list[str]:
    """Return the recipes whose bytes are not the published ones."""
    return [
        recipe.recipe
        for recipe in recipes
        if recipe.published_bytes
        and abs(sum(bytes_per_parameter(recipe.resolved()).values()) - float(recipe.published_bytes)) > 0.01
    ]


def page(table: str, on_hosts: str) -> str:
    """The page that is kept under ``benchmarks/``."""
    return f"""# Bytes of states

Bytes per parameter that a device holds of {MODEL}, without sharding, by version {__version__} on
{date.today().isoformat()}. Made by `python benchmarks/states.py --write` from
`benchmarks/states/recipes.csv`. Computed by the memory ledger, not measured. Moments in fp8 and fp16 have an fp32 scale
for each parameter, which is less than 0.01 bytes.

{table}

A narrow optimizer of Megatron keeps of an fp32 master copy only the 16 bits that a bf16 parameter lacks: 2 bytes.

## The optimizer on the host

Plans that the search finds fastest, with the optimizer's states on the devices or in host memory
([ZeRO-Offload](../docs/plans.md#states-on-the-host)), of the questions in `benchmarks/states/host.csv`. Predicted, not
measured: the host's step rests on `host_memory_efficiency`, whose one source is the same paper's table of CPU-Adam.
TFLOP/s are those of a device, as MFU counts them; the next column counts recomputation too. Which of both the paper
counts is not known here.

{on_hosts}
"""


def main() -> int:
    """Print the table, and write the page where that is asked."""
    with RECIPES.open(encoding="utf-8", newline="") as file:
        recipes = [Recipe(**row) for row in csv.DictReader(file)]
    answers = [(asked, asked.best()) for asked in read_questions()]
    table, on_hosts = "\n".join(rows(recipes)), "\n".join(host_rows(answers))
    print(table, on_hosts, sep="\n\n")
    if "--write" in sys.argv:
        (Path(__file__).parent / "states.md").write_text(page(table, on_hosts), encoding="utf-8")
    failed = wrong(recipes) + [asked.question for asked, best in answers if asked.is_wrong(best)]
    print(*(f"differs from the published number: {name}" for name in failed), sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
