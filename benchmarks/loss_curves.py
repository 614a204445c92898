"""Loss over steps of what a plan may train with, on a small model, drawn.

    python benchmarks/loss_curves.py            prints the tables
    python benchmarks/loss_curves.py --write    also writes benchmarks/loss-curves.md and two drawings

Each line of ``RECIPES`` is trained by the runtime on the example text with three seeds, from the same weights. Each
line of ``ADAPTED`` starts from a base of its seed, which AdamW has trained on the first half of the text, and trains on
the second half. Passes compute in fp32, which is quick on a CPU; states have the types that a plan writes. The losses
are measured; a difference that is smaller than the spread over seeds says nothing.
"""

import json
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from datetime import date
from functools import partial
from math import prod
from multiprocessing import get_context
from pathlib import Path
from statistics import mean, pstdev

from meshwright import __version__, api
from meshwright.model.load import load_model
from meshwright.model.named_tensors import named_parameters
from meshwright.present.svg.line_chart import LineChart, line_chart

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "benchmarks" / "loss-curves.md"
PICTURE, ADAPTED_PICTURE = PAGE.with_suffix(".svg"), PAGE.with_name("loss-curves-adapted.svg")
CONFIG = ROOT / "examples" / "small-llama" / "config.json"
TEXT = ROOT / "examples" / "persuasion-volume-one.txt"
SIZES = {"hidden_size": 128, "intermediate_size": 384}
"""Sizes of the model where it is smaller than the example: Muon orthogonalises in bf16, which is slow on a CPU."""
SEEDS, STEPS, WARMUP, LR = (0, 1, 2), 40, 5, 2e-3
SHOWN = (1, 2, 4, 8, 16, 24, 32, 40)
LAST = 8
"""Steps at the end whose mean loss is compared."""
WORKLOAD = {"seq_len": 64, "global_batch": 8}
HALVES = {"gradient": "bf16", "reduce": "bf16"}
Keys = Mapping[str, object]
RECIPES: Mapping[str, Keys] = {
    "AdamW, fp32 states": {},
    "gradients in bf16": {"dtypes": HALVES},
    "moments in bf16": {"dtypes": {"first_moment": "bf16", "second_moment": "bf16"}},
    "moments in fp8 and fp16": {"dtypes": {"first_moment": "fp8", "second_moment": "fp16"}},
    "all states narrow": {
        "dtypes": HALVES | {"master": "fp16", "first_moment": "bf16", "second_moment": "bf16"}
    },
    "Muon": {"workload": {**WORKLOAD, "optimizer": "muon"}},
}
"""Keys of a plan by recipe; the first is what the others are compared with."""


def _adapting(**adapter: object) -> Keys:
    return {"workload": {**WORKLOAD, "task": "lora", "adapter": adapter}}


ADAPTED: Mapping[str, Keys] = {
    "all parameters, AdamW": {},
    "LoRA of rank 8": _adapting(rank=8, alpha=16.0),
    "HD-PiSSA, 2 ranks with 8 pairs each": {
        **_adapting(form="hd-pissa", rank=8),
        "cluster": "h100-sxm-80gb x 2",
        "layout": {"dp_replicate": 2},
    },
}
"""Keys of a plan by what it trains of a base."""
Losses = dict[str, list[list[float]]]
"""Losses of every step, by recipe and seed."""


@dataclass(frozen=True)
class Lab:
    """A folder with the model's configuration, the halves of the text, and all runs of so many steps."""

    folder: Path
    steps: int = STEPS

    def prepare(self) -> None:
        """Write the configuration and the halves."""
        (self.folder / "config.json").write_text(json.dumps(json.loads(CONFIG.read_text()) | SIZES))
        text = TEXT.read_text(encoding="utf-8")
        for name, half in (("first", text[: len(text) // 2]), ("second", text[len(text) // 2 :])):
            (self.folder / f"{name}.txt").write_text(half, encoding="utf-8")

    def run(
        self,
        name: str,
        keys: Keys,
        seed: int,
        data: Path,
        *,
        base: Path | None = None,
        export: Path | None = None,
    ) -> list[float]:
        """Train a plan, from the weights and with the tokenizer of a base if there is one; return its losses."""
        plan = {
            "plan": 1,
            "model": str(self.folder / "config.json"),
            "cluster": "h100-sxm-80gb x 1",
            "workload": WORKLOAD,
            "stack": "meshwright",
            "layout": {},
            **keys,
        }
        path = self.folder / f"{name}-{seed}.yaml"
        path.write_text(json.dumps(plan), encoding="utf-8")
        options = {
            "steps": self.steps,
            "seed": seed,
            "lr": LR,
            "warmup_steps": WARMUP,
            "output": self.folder / f"{name}-{seed}",
            "data": (str(data),),
            "cache": self.folder / "tokens",
            "tokenizer": base and str(base),
        }
        done = api.run(
            path,
            options=options,
            precision="fp32",
            initial=base and str(base),
            export=export and str(export),
            resume="never",
            cpu=True,
        )
        assert done is not None
        losses = list(done.outcome.losses)
        print(f"{name}, seed {seed}: {losses[-1]:.4f}", file=sys.stderr, flush=True)
        return losses


def of_seed(lab: Lab, seed: int) -> dict[str, list[float]]:
    """Return the losses of all recipes, and of what starts from a base, with one seed."""
    base, second = lab.folder / f"base of seed {seed}", lab.folder / "second.txt"
    found = {name: lab.run(name, keys, seed, TEXT) for name, keys in RECIPES.items()}
    lab.run("base", {}, seed, lab.folder / "first.txt", export=base)
    return found | {name: lab.run(name, keys, seed, second, base=base) for name, keys in ADAPTED.items()}


def measured(lab: Lab) -> tuple[Losses, Losses]:
    """Return the losses of all recipes, and of what starts from a base; a process for each seed."""
    with ProcessPoolExecutor(len(SEEDS), get_context("spawn")) as pool:
        everything = list(pool.map(partial(of_seed, lab), SEEDS))
    scratch, adapted = (
        {name: [of[name] for of in everything] for name in names} for names in (RECIPES, ADAPTED)
    )
    return scratch, adapted


def parameters(lab: Lab) -> int:
    """Return the number of the model's parameters."""
    model = load_model(str(lab.folder / "config.json"))
    return sum(prod(p.shape) for p in named_parameters(model).values())


def table(found: Losses) -> list[str]:
    """Return the lines of a table: the mean loss at the end, its spread over seeds, and the mean difference."""
    usual = next(iter(found.values()))
    lines = [
        f"| recipe | loss of the first step | loss of the last {LAST} steps | spread over seeds "
        "| difference from the first | its spread |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for recipe, runs in found.items():
        ends = [mean(run[-LAST:]) for run in runs]
        apart = [end - mean(first[-LAST:]) for end, first in zip(ends, usual, strict=True)]
        begin = mean(run[0] for run in runs)
        lines.append(
            f"| {recipe} | {begin:.4f} | {mean(ends):.4f} | {pstdev(ends):.4f} "
            f"| {mean(apart):+.4f} | {pstdev(apart):.4f} |"
        )
    return lines


def page(scratch: Losses, adapted: Losses, count: int) -> str:
    """Return the page."""
    tokens = WORKLOAD["seq_len"] * WORKLOAD["global_batch"]
    words = [
        "# Loss curves",
        "",
        f"Measured on a CPU by version {__version__} on {date.today().isoformat()} with "
        "`python benchmarks/loss_curves.py --write`:",
        f"a Llama of {count / 1e6:.2f} million parameters, {STEPS} steps of {tokens} tokens of the example text, "
        f"learning rate {LR}, {len(SEEDS)} seeds.",
        "Passes compute in fp32; states have the types that are named.",
        "A difference is taken seed by seed, between runs with the same weights and data.",
        "",
        "## From random weights",
        "",
        *table(scratch),
        "",
        "![Loss over steps](loss-curves.svg)",
        "",
        "## From a base",
        "",
        f"AdamW has trained the base of each seed for {STEPS} steps on the first half of the text. "
        "These runs train on the second half.",
        "",
        *table(adapted),
        "",
        "![Loss over steps from a base](loss-curves-adapted.svg)",
        "",
        "This is a small model and a short run: it shows that each recipe trains, not what it does at scale.",
    ]
    return "\n".join(words) + "\n"


def picture(title: str, found: Losses) -> str:
    """Return the drawing: mean losses over seeds."""
    lines = {
        recipe: [(float(step), mean(run[step - 1] for run in runs)) for step in SHOWN]
        for recipe, runs in found.items()
    }
    return line_chart(LineChart(title=title, across="steps", up="loss", lines=lines, logarithmic=True))


def main() -> None:
    """Train all recipes, print the tables, and write page and drawings where asked to."""
    with tempfile.TemporaryDirectory() as place:
        lab = Lab(Path(place))
        lab.prepare()
        scratch, adapted = measured(lab)
        written = page(scratch, adapted, parameters(lab))
    print(written)
    if "--write" in sys.argv[1:]:
        PAGE.write_text(written, encoding="utf-8")
        seeds = f"mean of {len(SEEDS)} seeds"
        PICTURE.write_text(picture(f"Loss over steps, {seeds}", scratch), encoding="utf-8")
        ADAPTED_PICTURE.write_text(
            picture(f"Loss over steps from a base, {seeds}", adapted), encoding="utf-8"
        )


if __name__ == "__main__":
    main()
