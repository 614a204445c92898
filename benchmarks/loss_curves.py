"""Loss over steps of what a plan may train with, on a small model, drawn.

    python benchmarks/loss_curves.py            prints the table
    python benchmarks/loss_curves.py --write    also writes benchmarks/loss-curves.md and benchmarks/loss-curves.svg

Each line of ``RECIPES`` is trained by the runtime in bf16 on the example text with three seeds: the same weights, data
and learning rate for all recipes. The losses are measured; a difference that is smaller than the spread over seeds says
nothing.
"""

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import date
from math import prod
from pathlib import Path
from statistics import mean, pstdev

from meshwright import __version__, api
from meshwright.model.load import load_model
from meshwright.model.named_tensors import named_parameters

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
from line_chart import line_chart  # noqa: E402  a script's folder is no package

PAGE, PICTURE = ROOT / "benchmarks" / "loss-curves.md", ROOT / "benchmarks" / "loss-curves.svg"
MODEL, TEXT = (
    ROOT / "examples" / "small-llama" / "config.json",
    ROOT / "examples" / "persuasion-volume-one.txt",
)
SEEDS, STEPS, WARMUP, LR = (0, 1, 2), 64, 6, 2e-3
SHOWN = (1, 2, 4, 8, 16, 32, 64)
LAST = 8
"""Steps at the end whose mean loss is compared."""
WORKLOAD = {"seq_len": 128, "global_batch": 8}
HALVES = {"gradient": "bf16", "reduce": "bf16"}
RECIPES: Mapping[str, Mapping[str, object]] = {
    "AdamW, fp32 states": {},
    "gradients in bf16": {"dtypes": HALVES},
    "moments in bf16": {"dtypes": {"first_moment": "bf16", "second_moment": "bf16"}},
    "moments in fp8 and fp16": {"dtypes": {"first_moment": "fp8", "second_moment": "fp16"}},
    "all in bf16, no master": {
        "dtypes": HALVES | {"master": "none", "first_moment": "bf16", "second_moment": "bf16"}
    },
    "Muon": {"workload": {**WORKLOAD, "optimizer": "muon"}},
}
"""Keys of a plan by recipe; the first is what the others are compared with."""


def losses(keys: Mapping[str, object], seed: int, folder: Path) -> list[float]:
    """Return the loss of every step of a run."""
    plan = {
        "plan": 1,
        "model": str(MODEL),
        "cluster": "h100-sxm-80gb x 1",
        "workload": WORKLOAD,
        "stack": "meshwright",
        "layout": {},
        **keys,
    }
    path = folder / "plan.yaml"
    path.write_text(json.dumps(plan), encoding="utf-8")
    options = {
        "steps": STEPS,
        "seed": seed,
        "lr": LR,
        "warmup_steps": WARMUP,
        "output": folder / "run",
        "data": (str(TEXT),),
        "cache": folder.parent / "tokens",
    }
    done = api.run(path, options=options, resume="never", cpu=True)
    assert done is not None
    return list(done.outcome.losses)


def parameters() -> int:
    """Return the number of the model's parameters."""
    return sum(prod(p.shape) for p in named_parameters(load_model(str(MODEL))).values())


def measured() -> dict[str, list[list[float]]]:
    """Return the losses of every recipe and seed."""
    found: dict[str, list[list[float]]] = {}
    with tempfile.TemporaryDirectory() as place:
        for number, (recipe, keys) in enumerate(RECIPES.items()):
            for seed in SEEDS:
                folder = Path(place) / f"{number}-{seed}"
                folder.mkdir()
                found.setdefault(recipe, []).append(losses(keys, seed, folder))
                print(f"{recipe}, seed {seed}: {found[recipe][-1][-1]:.4f}", file=sys.stderr)
    return found


def table(found: Mapping[str, Sequence[Sequence[float]]]) -> list[str]:
    """Return the lines of the table: the mean loss at the end, its spread over seeds, and the mean difference."""
    usual = next(iter(found.values()))
    lines = [
        f"| recipe | loss of the last {LAST} steps | spread over seeds | difference from the first | its spread |",
        "|---|--:|--:|--:|--:|",
    ]
    for recipe, runs in found.items():
        ends = [mean(run[-LAST:]) for run in runs]
        apart = [end - mean(first[-LAST:]) for end, first in zip(ends, usual, strict=True)]
        lines.append(
            f"| {recipe} | {mean(ends):.4f} | {pstdev(ends):.4f} | {mean(apart):+.4f} | {pstdev(apart):.4f} |"
        )
    return lines


def page(lines: Sequence[str]) -> str:
    """Return the page."""
    words = [
        "# Loss curves",
        "",
        f"Measured on a CPU by version {__version__} on {date.today().isoformat()} with "
        "`python benchmarks/loss_curves.py --write`:",
        f"the small Llama of the examples ({parameters() / 1e6:.2f} million parameters), {STEPS} steps of 1,024 tokens "
        "of the example text, "
        f"bf16, learning rate {LR}, {len(SEEDS)} seeds.",
        "A difference is taken seed by seed, between runs with the same weights and data.",
        "",
        *lines,
        "",
        "![Loss over steps](loss-curves.svg)",
        "",
        "This is a small model and a short run: it shows that each recipe trains, not what it does at scale.",
    ]
    return "\n".join(words) + "\n"


def picture(found: Mapping[str, Sequence[Sequence[float]]]) -> str:
    """Return the drawing: mean losses over seeds."""
    lines = {
        recipe: [(float(step), mean(run[step - 1] for run in runs)) for step in SHOWN]
        for recipe, runs in found.items()
    }
    return line_chart("Loss over steps, mean of 3 seeds", "steps", "loss", lines)


def main() -> None:
    """Train all recipes, print the table, and write page and drawing where asked to."""
    found = measured()
    lines = table(found)
    print("\n".join(lines))
    if "--write" in sys.argv[1:]:
        PAGE.write_text(page(lines), encoding="utf-8")
        PICTURE.write_text(picture(found), encoding="utf-8")


if __name__ == "__main__":
    main()
