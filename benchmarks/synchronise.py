"""Systems that communicate less: published figures beside ours, what is assumed, and loss over tokens and bytes.

    python benchmarks/synchronise.py            prints the page
    python benchmarks/synchronise.py --write    also writes benchmarks/synchronise.md and two drawings

Figures are computed from counts, or predicted; losses are measured on this machine's CPU. That each system's plan
computes what one process computes is proven elsewhere (``tests/runtime/plan_sets``, ``meshwright verify``).
"""

import sys
import tempfile
from collections.abc import Iterable
from datetime import date
from pathlib import Path

from loss_curves import parameters
from synchronise_figures import Figure, figures
from synchronise_losses import LAST, STEPS, WORKLOAD, Curves, laboratory, pictures, table, trained
from synchronise_predictions import predictions
from synchronise_toy import STEPS as TOY_STEPS
from synchronise_toy import final_losses

from meshwright import __version__

PAGE = Path(__file__).resolve().parent / "synchronise.md"
ASSUMED = (
    "CO2's penalty Λ = 1 + |lr·m| / (|lr·m| + |Δ|), element by element: the paper does not give its form for one rank",
    "TAGC's index: none; the hash is a permutation of places modulo the width, with random signs",
    "LSH-MoE's rotation: drawn from seed and layer, equal on all ranks",
    "L-GreCo's spectrum: singular values fall as 1/j, since a plan knows its bytes before it sees gradients",
    "e3m0: exponent 0 is zero; a bucket's largest magnitude is its scale, as for the 8-bit type",
    "QSR: the rate of the next step sets a round; fragment i begins i·H/count steps into a round of H",
    "MT-DAO: ω weighs the gradient against the slow momentum, so that ω = 0 is AdamW",
    "passes over memory of codecs, outer optimizers and anchors, which price them",
)
"""What the papers do not state, and is chosen."""


def rows(found: Iterable[Figure]) -> list[str]:
    """Return the lines of a table of figures."""
    lines = ["| system | figure | published | ours | from |", "|---|---|--:|--:|---|"]
    return lines + [
        f"| {one.system} | {one.what} | {one.published} | {one.computed} | {one.origin} |" for one in found
    ]


def page(curves: Curves, count: int) -> str:
    """Return the page."""
    tokens, toy = WORKLOAD["seq_len"] * WORKLOAD["global_batch"], final_losses()
    words = [
        "# Synchronise less often, and with fewer bytes",
        "",
        f"Made by `python benchmarks/synchronise.py --write` (`make synchronise`), version {__version__}, "
        f"{date.today().isoformat()}.",
        "Every system is a plan in [examples/synchronise](../examples/synchronise); the keys are "
        "[documented](../docs/synchronise.md).",
        "",
        "## Counted",
        "",
        *rows(figures()),
        "",
        "## Predicted",
        "",
        "Predicted times of the examples' models and clusters, not measured ones.",
        "",
        *rows(predictions()),
        "",
        "## Assumed",
        "",
        *(f"- {text}" for text in ASSUMED),
        "",
        "## Loss over tokens and bytes",
        "",
        f"Measured on a CPU: a Llama of {count / 1e6:.2f} million parameters on two ranks, {STEPS} steps of "
        f"{tokens} tokens of the example text, three seeds, fp32. Bytes are those that `predict` counts.",
        "",
        *table(curves),
        "",
        "![Loss over tokens](synchronise-tokens.svg)",
        "",
        "![Loss over bytes](synchronise-bytes.svg)",
        "",
        f"A small model and a short run: it shows that each system trains, by the mean of the last {LAST} losses, and "
        "not what it does at scale.",
        "",
        "## DES-LOC's toy",
        "",
        f"Rosenbrock's function, 256 workers, noise 1.5, periods 192, 192 and 692, {TOY_STEPS:,} steps of Adam; rate, "
        "β and start are assumed. Mean loss of the last third:",
        "",
        "| moments are | loss |",
        "|---|--:|",
        *(f"| {mode} | {loss:.1e} |" for mode, loss in toy.items()),
        "",
        "The paper's toy stalls with local and with reset moments. With these assumptions reset moments stay at a "
        "higher loss, and local ones do not.",
    ]
    return "\n".join(words) + "\n"


def main() -> None:
    """Train, compute and write."""
    with tempfile.TemporaryDirectory() as place:
        lab = laboratory(Path(place))
        curves = trained(lab)
        written = page(curves, parameters(lab))
    print(written)
    if "--write" in sys.argv[1:]:
        PAGE.write_text(written, encoding="utf-8")
        for across, drawing in pictures(curves).items():
            PAGE.with_name(f"synchronise-{across}.svg").write_text(drawing, encoding="utf-8")


if __name__ == "__main__":
    main()
