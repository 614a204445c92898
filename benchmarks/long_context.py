"""How long sequences can be: by form of context parallelism and number of devices, beside a published sweep.

Run: ``python benchmarks/long_context.py [--write]``; about a minute. All figures of ours are predicted.
"""

import sys
from datetime import date
from pathlib import Path

from meshwright import __version__
from meshwright.cost.closed_form.evaluate_plans import Estimates, evaluate
from meshwright.errors import InputError
from meshwright.plans.arrays.short_plans import from_shorts
from meshwright.plans.context_parallel import Context
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.resolve import Resolved, resolve

PAGE = Path(__file__).with_suffix(".md").with_name("long-context.md")
MODEL = "llama-3.1-8b"
GIB, TOKENS = 2**30, 1024
STEP = 16 * TOKENS
"""Lengths are multiples of it: any form on 64 devices divides them."""
LONGEST = 2**26
DEVICES = (4, 8, 16, 32, 64)
KV_HEADS = 8
FORMS = ("ring", "all-gather", "token-ring", "rsa", "ulysses", "ring of ulysses")

PUBLISHED = ((1, 32768, 3890, 83.9), (2, 65536, 2540, 84.2), (4, 131072, 1071, 84.0), (8, 262144, 548, 84.5))
"""cp, sequence length, tokens per second and GPU, GiB: torchtitan, docs/performance.md, table 2. FSDP over 8 / cp."""
SOURCE = "https://github.com/pytorch/torchtitan/blob/main/docs/performance.md"

HEADS, WIDTH, RANKS, LENGTH = 32, 128, 4, 24_000
RING_MS, TOKEN_RING_MS = 7.6, (3.5, 4.6)
"""LLaMA-2-7B's heads on four A10: a step of a ring, and steps of TokenRing (arXiv 2412.20501, its repository)."""


def plan(devices: int, cp: int, seq_len: int, context: object, **more: object) -> ShortPlan:
    """One sequence for each replica, parameters sharded over all devices, whole layers run again."""
    data = {
        "plan": 1,
        "model": MODEL,
        "cluster": f"h100-sxm-80gb x {devices}",
        "stack": "meshwright",
        "workload": {"seq_len": seq_len, "global_batch": devices // cp},
        "layout": {"dp_shard": devices // cp, "cp": cp, "context": context},
        "sharding": "zero3",
        "recompute": "full",
    }
    return ShortPlan.model_validate(data | more)


def context_of(form: str, devices: int) -> tuple[int, object] | None:
    """cp and what a plan says of it: all devices, or as many as heads allow; None where a form needs more ranks."""
    if form == "ulysses":
        return min(devices, KV_HEADS), "ulysses"
    if form == "ring of ulysses":
        inner = min(KV_HEADS, devices // 2)
        return (devices, Context(form="ring", ulysses=inner)) if inner > 1 else None
    return devices, form


def estimated(found: Resolved) -> Estimates:
    """The estimate of one plan."""
    assert found.short is not None
    return evaluate(from_shorts([found.short]), found.setting)


def longest(form: str, devices: int) -> int | None:
    """The longest sequence that fits; None where the form does not go with so few devices."""
    said = context_of(form, devices)
    if said is None:
        return None
    cp, context = said

    def fits(steps: int) -> bool:
        try:
            return bool(estimated(resolve(plan(devices, cp, steps * STEP, context))).fits[0])
        except InputError as error:
            raise SystemExit(str(error)) from error

    low, high = 0, LONGEST // STEP
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low * STEP


def sweep() -> list[str]:
    """The published sweep, predicted."""
    rows = [
        "| cp | tokens | GiB published | GiB predicted | tokens/s/GPU published | predicted |",
        "|--:|--:|--:|--:|--:|--:|",
    ]
    for cp, seq_len, rate, held in PUBLISHED:
        workload = {"seq_len": seq_len, "global_batch": 8 // cp, "precision": "fp8"}
        own = plan(8, cp, seq_len, "all-gather", workload=workload, stack="torchtitan")
        found = estimated(
            resolve(own.model_copy(update={"cluster": "h100-sxm-96gb-500w x 8", "recompute": "full"}))
        )
        tokens = seq_len * (8 // cp) / found.step_s[0] / 8
        rows.append(
            f"| {cp} | {seq_len:,} | {held} | {found.total_bytes[0] / GIB:.1f} | {rate:,} | {tokens:,.0f} |"
        )
    return rows


def lengths() -> list[str]:
    """The longest sequences of every form."""
    rows = ["| form | " + " | ".join(map(str, DEVICES)) + " |", "|---|" + "--:|" * len(DEVICES)]
    for form in FORMS:
        cells = [longest(form, devices) for devices in DEVICES]
        said = ["–" if cell is None else f"{cell // TOKENS:,}" for cell in cells]
        rows.append(f"| {form} | " + " | ".join(said) + " |")
    return rows


def duplex() -> list[str]:
    """A step of TokenRing over a step of a ring, on links that carry both ways at once, and through ports."""
    tokens, width = LENGTH // RANKS, HEADS * WIDTH
    pair, queries = 2 * 2 * tokens * width, 2 * tokens * width
    back = queries + 4 * tokens * HEADS
    low, high = (ms / RING_MS for ms in TOKEN_RING_MS)
    return [
        "| what carries it | a ring's step, MB | TokenRing's step, MB | ratio |",
        "|---|--:|--:|--:|",
        f"| a link between two devices, both ways at once | {pair / 1e6:.1f} | {max(queries, back) / 1e6:.1f} "
        f"| {max(queries, back) / pair:.3f} |",
        f"| a port to a switch: all that a device sends | {pair / 1e6:.1f} | {(queries + back) / 1e6:.1f} "
        f"| {(queries + back) / pair:.3f} |",
        f"| published, four A10 | {RING_MS} ms | {TOKEN_RING_MS[0]} and {TOKEN_RING_MS[1]} ms "
        f"| {low:.2f} to {high:.2f} |",
    ]


def page() -> str:
    """The whole page."""
    return "\n".join(
        [
            "# Long sequences",
            "",
            f"Meshwright {__version__}, {date.today()}; `python benchmarks/long_context.py --write`. Figures of ours "
            "are predicted; nothing here is fitted to what stands beside them.",
            "",
            "## A published sweep",
            "",
            "Llama-3.1-8B on 8 H100 (96 GB, 500 W), FSDP over 8/cp, full recomputation, compiled, products in FP8, one "
            f"sequence a replica ([torchtitan]({SOURCE}), table 2). Ours: stack torchtitan, `context: all-gather`, "
            "precision fp8.",
            "",
            *sweep(),
            "",
            "## The longest sequence, in 1,024 tokens",
            "",
            "Llama-3.1-8B on so many H100 80 GB, stack meshwright, bf16, zero3, full recomputation, one sequence at a "
            "time over all devices; pure Ulysses over at most 8, the key-value heads. Memory alone decides: a length "
            "that fits may take days.",
            "",
            *lengths(),
            "",
            "## TokenRing",
            "",
            "Bytes of one step at 24,000 tokens over 4 ranks with the heads of LLaMA-2-7B, in 2 bytes, statistics in "
            "4: a ring sends keys and values one way, TokenRing queries one way and outputs the other "
            "(arXiv 2412.20501). The cost model counts all that a device sends, as through a port: there "
            "TokenRing gains nothing.",
            "",
            *duplex(),
            "",
        ]
    )


if __name__ == "__main__":
    text = page()
    print(text)
    if "--write" in sys.argv[1:]:
        PAGE.write_text(text, encoding="utf-8")
