"""Bytes of states per parameter, models that train with states on the host or with adapters, and the price of Muon.

    python benchmarks/states.py            prints the table
    python benchmarks/states.py --write    also writes benchmarks/states.md

Each line of ``benchmarks/states/recipes.csv`` is a stack, a precision, an optimizer and what a plan for it writes under
``dtypes``. The bytes are those of the memory ledger of a plan on one device without sharding, divided by its
parameters. The lines of ``host.csv`` are questions to the search (``states_on_host.py``), those of ``adapters.csv`` too
(``adapters_on_one_card.py``), and those of ``chunks.csv`` nodes for the largest models in chunks
(``states_in_chunks.py``). Exits with 1 where a published number differs, or fits what should not.
"""

import csv
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from adapters_on_one_card import adapter_rows
from adapters_on_one_card import read_questions as read_adapters
from states_in_chunks import chunk_rows
from states_on_host import host_rows, read_questions
from two_losses_on_hosts import two_loss_rows, two_loss_section

from meshwright import __version__
from meshwright.cost.operators.program_passes import rank_step_seconds
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.resolve import Resolved, resolve
from meshwright.program.lowering.lower_plan import lower
from meshwright.program.model_states.state_elements import STATE_KINDS
from meshwright.simulate.memory_ledger import rank_ledger
from meshwright.simulate.plan_estimate import lower_and_simulate, program_prices
from meshwright.stack.state_types import types_of

RECIPES = Path(__file__).parent / "states" / "recipes.csv"
MODEL, CLUSTER = "llama-3.1-8b", "b200 x 1"


@dataclass(frozen=True, slots=True)
class Recipe:
    """A line of the table of recipes."""

    recipe: str
    stack: str
    precision: str
    optimizer: str
    dtypes: str
    published_bytes: str
    source: str

    @property
    def written(self) -> dict[str, str]:
        """What a plan writes under ``dtypes``."""
        pairs = (setting.split("=") for setting in self.dtypes.split())
        return dict(pairs)

    @property
    def chosen(self) -> str | dict[str, object]:
        """The optimizer as a plan writes it: a name, or a name and a momentum."""
        name, _, momentum = self.optimizer.partition(" ")
        return {"name": name, "momentum": float(momentum)} if momentum else name

    def resolved(self) -> Resolved:
        """Return the recipe's plan, on one device."""
        usual = "zero1" if self.written else "none"
        sharding = {"torchtitan": "zero3", "accelerate": "zero3"}.get(self.stack, usual)
        data: dict[str, object] = {
            "plan": 1,
            "model": MODEL,
            "cluster": CLUSTER,
            "workload": {
                "seq_len": 2048,
                "global_batch": 8,
                "precision": self.precision,
                "optimizer": self.chosen,
            },
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
    yield (
        "| recipe | stack | precision | optimizer | dtypes "
        "| parameters | gradients | its states | all | published | source |"
    )
    yield "|---|---|---|---|---|--:|--:|--:|--:|--:|---|"
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
            f"| {recipe.recipe} | {stack.id} | {precision} | {recipe.optimizer} | {shown} | {numbers} "
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


def kimi_k2(optimizer: str | dict[str, object]) -> Resolved:
    """Return a plan of Kimi K2's published recipe with an optimizer.

    Published (arXiv 2507.20534): pp 16 with interleaved 1F1B, ep 16, ZeRO-1, H800 devices, 4,096 tokens a sequence and
    67 M tokens a batch. Assumed: 2,048 devices and 2 chunks.
    """
    data: dict[str, object] = {
        "plan": 1,
        "model": "kimi-k2",
        "cluster": "h800-sxm-80gb x 2048",
        "workload": {"seq_len": 4096, "global_batch": 16384, "optimizer": optimizer},
        "stack": "megatron-core",
        "layout": {"pp": 16, "dp_shard": 128, "ep": 16},
        "sharding": "zero1",
        "pipeline": {"schedule": "interleaved-1f1b", "virtual_stages": 2},
        "recompute": "full",
    }
    return resolve(ShortPlan.model_validate(data))


def price_rows() -> Iterator[str]:
    """Yield the lines of the table of Kimi K2's step with AdamW and with Muon."""
    yield "| optimizer | step, s | its optimizer, ms | optimizer states, GiB | all, GiB |"
    yield "|---|--:|--:|--:|--:|"
    for name in ("adamw", "muon"):
        plan = kimi_k2(name)
        program, simulation = lower_and_simulate(plan.long, plan.setting)
        prices = program_prices(program, plan.setting)
        ranks = range(program.pipeline_ranks)
        seconds = max(rank_step_seconds(program, prices, rank) for rank in ranks)
        ledgers = [rank_ledger(program, rank, plan.setting.cluster) for rank in ranks]
        states = max(ledger["optimizer"] for ledger in ledgers)
        every = max(sum(ledger.values()) for ledger in ledgers)
        numbers = (
            f"{simulation.step_s:.2f} | {1e3 * seconds:.1f} | {states / 2**30:.2f} | {every / 2**30:.2f}"
        )
        yield f"| {name} | {numbers} |"


def page(table: str, on_hosts: str, chunks: str, adapters: str, prices: str, losses: str) -> str:
    """Return the page that is kept under ``benchmarks/``."""
    return f"""# Bytes of states

Bytes per parameter that a device holds of {MODEL}, without sharding, by version {__version__} on
{date.today().isoformat()}. Made by `python benchmarks/states.py --write` from
`benchmarks/states/recipes.csv`. Computed by the memory ledger, not measured. Moments in fp8 and fp16 have an fp32 scale
for each parameter, which is less than 0.01 bytes.

{table}

Muon keeps one moment of hidden matrices, and AdamW's two of the rest, 13 % of this model.

A narrow optimizer of Megatron keeps of an fp32 master copy only the 16 bits that a bf16 parameter lacks: 2 bytes.

## The optimizer on the host

Plans that the search finds fastest, with the optimizer's states on the devices or in host memory
([ZeRO-Offload](../docs/plans.md#states-on-the-host)), of the questions in `benchmarks/states/host.csv`. Predicted, not
measured: the host's step rests on `host_memory_efficiency`, whose one source is the same paper's table of CPU-Adam.
TFLOP/s are those of a device, as MFU counts them; the next column counts recomputation too. Which of both the paper
counts is not known here.

{on_hosts}

## States in chunks

The largest GPT that one node holds with static homes of states, as DeepSpeed keeps them (ZeRO-2 or ZeRO-3, the
optimizer on the host, parameters there or not), and in [PatrickStar's chunks](../docs/plans.md#states-in-chunks), of
the nodes in `benchmarks/states/chunks.csv`; billions of parameters. Chunks use the room of devices and host together,
at 14 bytes a parameter; static homes fill the host with 16 and leave the devices half empty. The paper's ratios are not
reached. What DeepSpeed of 2021 could hold in practice, the paper's nodes and its shapes are not known here.

{chunks}

## Adapters on one card

The fastest plan for one device with [adapters](../docs/plans.md#adapters) on all matrices of the layers, of the
questions in `benchmarks/states/adapters.csv`: sequences of 1,024 tokens, 8 in a step, AdamW with fp32 states, which are
on the device unless a line says otherwise. Of a card's memory 92 % count as usable. Predicted, not measured.

{adapters}

## The price of Muon

Kimi K2 as its report describes the training (arXiv 2507.20534): 16 pipeline ranks with interleaved 1F1B, 16 ranks for
the experts, ZeRO-1, bf16 parameters and fp32 gradients, H800 devices, sequences of 4,096 tokens and batches of 67 M
tokens; about 30 GB of states on a device. Assumed are 2,048 devices, Megatron, 2 chunks on a rank, products in bf16,
nothing on the host and recomputation of whole layers. Muon has 5 steps, and ranks own whole matrices. All numbers are
predicted; the states are those of the fullest rank.

{prices}

{two_loss_section(losses)}

What narrow or fewer states, or another optimizer, do to the loss is not predicted.
"""


def main() -> int:
    """Print the table, and write the page where that is asked."""
    with RECIPES.open(encoding="utf-8", newline="") as file:
        recipes = [Recipe(**row) for row in csv.DictReader(file)]
    answers = [(asked, asked.best()) for asked in read_questions()]
    on_cards = [(asked, asked.best()) for asked in read_adapters()]
    table, on_hosts = "\n".join(rows(recipes)), "\n".join(host_rows(answers))
    chunks, adapters = "\n".join(chunk_rows()), "\n".join(adapter_rows(on_cards))
    prices, losses = "\n".join(price_rows()), "\n".join(two_loss_rows())
    parts = table, on_hosts, chunks, adapters, prices, losses
    print(*parts, sep="\n\n")
    if "--write" in sys.argv:
        (Path(__file__).parent / "states.md").write_text(page(*parts), encoding="utf-8")
    failed = wrong(recipes) + [asked.question for asked, best in answers if asked.is_wrong(best)]
    failed += [asked.question for asked, found in on_cards if asked.is_wrong(found)]
    print(*(f"differs from the published number: {name}" for name in failed), sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
