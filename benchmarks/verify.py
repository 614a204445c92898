"""Prove plans on 2, 4 and 8 local ranks against plain PyTorch, and show that faults are seen.

    python benchmarks/verify.py            prints the tables
    python benchmarks/verify.py --write    also writes benchmarks/verify.md

Exits with 1 where a plan is not equal, a fault is not seen, or a combination is not covered.

Three tables: a seeded covering set of compositions over all dense families with tiny models, and every family
with experts folded over data and tensor ranks; released models with
plans for many devices, shrunk as ``meshwright verify`` shrinks them; and faults, each put into the ranks of a plan.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from math import prod
from pathlib import Path

from meshwright import __version__
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.resolve import resolve
from meshwright.runtime.verify.case_result import BOUND, Outcome
from meshwright.runtime.verify.run_case import run_case
from meshwright.verbs.verify import Verified, verified

HERE = Path(__file__).parent
TESTS = HERE.parent / "tests"
sys.path[:0] = [str(TESTS / folder) for folder in ("", "runtime", "runtime/faults", "runtime/plan_sets")]

from covering_plans import (  # noqa: E402
    AXES,
    LATE,
    SEQ_LEN,
    SPECIAL,
    SPREADS,
    TURNED,
    TWICE,
    UNITS,
    Proven,
    covering_plans,
    spread_plans,
    told,
)
from encoder_plans import ENCODERS  # noqa: E402
from expert_combinations import folded  # noqa: E402
from fault_cases import FAULTS, Fault  # noqa: E402
from offloaded_plans import OFFLOADS  # noqa: E402

SEED, COUNT, SPREAD_COUNT, RANKS = "proofs", 54, 18, (8, 2, 4)
LARGE = (
    ("llama-3.1-405b", {"pp": 16, "dp_shard": 64, "tp": 8}, {"sharding": "zero1"}, "1f1b", 1),
    (
        "llama-3.1-70b",
        {"pp": 4, "dp_replicate": 4, "dp_shard": 8, "tp": 4},
        {"sharding": "zero1"},
        "interleaved-1f1b",
        5,
    ),
    (
        "llama-3.1-8b",
        {"dp_replicate": 4, "dp_shard": 32},
        {"sharding": "zero3", "recompute": "selective"},
        "1f1b",
        1,
    ),
    ("llama-3.2-1b", {"pp": 4, "dp_replicate": 8}, {}, "zb-h1", 1),
    ("gpt-3-175b", {"pp": 8, "dp_replicate": 16, "tp": 8}, {"recompute": "full"}, "interleaved-1f1b", 12),
    ("bloom-176b", {"pp": 12, "dp_shard": 8, "tp": 4}, {"sharding": "zero1", "recompute": "full"}, "1f1b", 1),
    ("qwen2.5-72b", {"pp": 8, "dp_shard": 4, "tp": 4}, {"sharding": "zero2"}, "zb-h2", 1),
    (
        "qwen3-32b",
        {"pp": 4, "dp_shard": 8},
        {"sharding": "zero3", "recompute": ["mlp", "layernorm"]},
        "v-half",
        2,
    ),
    ("gemma-2-27b", {"pp": 4, "dp_shard": 8, "tp": 2}, {"sharding": "zero3"}, "v-min", 2),
    ("mistral-7b-v0.3", {"dp_shard": 16, "tp": 2}, {"sharding": "zero3"}, "gpipe", 1),
    (
        "mixtral-8x7b",
        {"dp_shard": 16, "tp": 4, "ep": 8, "etp": 2},
        {"sharding": "zero1", "recompute": ["moe_act", "layernorm"]},
        "1f1b",
        1,
    ),
    (
        "deepseek-v3",
        {"pp": 8, "dp_shard": 32, "ep": 8},
        {"sharding": "zero1", "recompute": ["moe", "mla_up_proj"]},
        "zb-h1",
        1,
    ),
    (
        "minimax-text-01",
        {"pp": 4, "dp_shard": 8, "cp": 4, "tp": 4, "ep": 32},
        {"sharding": "zero1"},
        "interleaved-1f1b",
        5,
    ),
    ("qwen3-235b-a22b", {"dp_shard": 64, "ep": 16}, {"sharding": "zero3"}, "1f1b", 1),
    ("gpt-oss-120b", {"pp": 4, "dp_replicate": 8, "tp": 2, "ep": 8}, {}, "1f1b", 1),
    (
        "t5-11b",
        {"dp_replicate": 4, "dp_shard": 8, "tp": 8},
        {"sharding": "zero3", "recompute": ["layernorm", "core_attn"], "workload": {"encoder_tokens": 512}},
        "1f1b",
        1,
    ),
    (
        "flan-t5-xxl",
        {"dp_shard": 32, "tp": 2},
        {"sharding": "zero1", "recompute": "full", "workload": {"encoder_tokens": 1024}},
        "1f1b",
        1,
    ),
    (
        "qwen2.5-vl-7b",
        {"dp_shard": 64, "tp": 2},
        {"sharding": "zero3", "workload": {"images": {"per_sequence": 4, "tokens": 1024}}},
        "1f1b",
        1,
    ),
    (
        "qwen2.5-vl-72b",
        {"pp": 8, "dp_shard": 8, "tp": 4},
        {
            "sharding": "zero1",
            "recompute": "full",
            "workload": {"images": {"per_sequence": 2, "tokens": 1024}},
        },
        "zb-h1",
        1,
    ),
)
"""Models with plans for up to 8,192 devices: degrees, choices, schedule, stages per rank."""


@dataclass(frozen=True)
class Row:
    """A plan in words, on so many ranks, and what its trial has shown."""

    model: str
    plan: str
    ranks: int
    outcome: Outcome


def silent(what: str, part: float) -> None:
    """Hear of no progress."""


def proven(plan: Proven) -> Row:
    """Run one composition of a tiny model."""
    return Row(plan.model, told(plan), plan.ranks, run_case(plan.trial(), silent))


def compositions() -> list[Proven]:
    """What is composed: the same every time."""
    drawn = [*covering_plans(SEED, RANKS, COUNT), *spread_plans(SEED, RANKS, SPREAD_COUNT)]
    return [*SPECIAL, *TURNED, *TWICE, *UNITS, *SPREADS, *OFFLOADS, *LATE, *ENCODERS, *folded(), *drawn]


def large(
    model: str, layout: dict[str, int], keys: dict[str, object], schedule: str, chunks: int
) -> Verified:
    """Verify a plan of a released model."""
    devices = prod(degree for axis, degree in layout.items() if axis in AXES)
    data = {
        "plan": 1,
        "model": model,
        "cluster": f"h100-sxm-80gb x {devices}",
        "stack": "meshwright",
        "layout": layout,
        "pipeline": {"schedule": schedule, "virtual_stages": chunks},
        **{key: tuple(value) if isinstance(value, list) else value for key, value in keys.items()},
    }
    data["workload"] = {"seq_len": 2048, "global_batch": 2048, **data.get("workload", {})}
    return verified(resolve(ShortPlan.model_validate(data)), 8, silent)


def shrunk() -> Iterator[tuple[str, Row, Verified]]:
    """Every small plan of every large one."""
    for model, layout, keys, schedule, chunks in LARGE:
        found = large(model, layout, keys, schedule, chunks)
        degrees = " ".join(f"{axis} {degree}" for axis, degree in layout.items())
        for small, outcome in found.trials:
            yield degrees, Row(model, small.text, small.ranks, outcome), found


def with_fault(fault: Fault) -> Outcome:
    """Run a plan whose ranks have a fault."""
    return run_case(fault.plan.trial(), silent, fault.put_in)


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(str(cell).replace('|', '/') for cell in line)} |\n" for line in lines)


def errors(outcome: Outcome) -> list[str]:
    """The four errors, or why there are none; then what the checks of bytes and copies say."""
    if outcome.failure:
        return ["–", "–", "–", "–", outcome.failure]
    values = (outcome.loss, outcome.gradient, outcome.norm, outcome.parameter)
    rest = "exact" if not outcome.traffic and not outcome.copies else "**differ**"
    return [f"{error.value:.0e}" for error in values] + [rest]


HEADER = ("ranks", "loss", "gradients", "norm", "parameters", "bytes and copies")


def composed_table(rows: Iterable[Row]) -> str:
    """Composition by composition."""
    return table(("model", "plan", *HEADER), ([r.model, r.plan, r.ranks, *errors(r.outcome)] for r in rows))


def shrunk_table(found: Iterable[tuple[str, Row, Verified]]) -> str:
    """Small plan by small plan, with the plan that it stands for."""
    return table(
        ("model", "plan", "small plan", *HEADER),
        ([row.model, degrees, row.plan, row.ranks, *errors(row.outcome)] for degrees, row, _ in found),
    )


def fault_table(found: Iterable[tuple[Fault, Outcome]]) -> str:
    """Fault by fault: which checks saw it, and the first line of an error."""
    return table(
        ("fault", "plan", "seen by"),
        ([fault.name, f"{fault.plan.model}, {told(fault.plan)}", _seen(fault, out)] for fault, out in found),
    )


def _seen(fault: Fault, outcome: Outcome) -> str:
    checks = ", ".join(outcome.caught_by) or "nothing"
    said = f"{checks}: {outcome.failure}" if outcome.failure else checks
    return said if fault.is_seen(outcome) else f"**{said}**"


@dataclass(frozen=True)
class Proof:
    """Everything that was run."""

    composed: tuple[Row, ...]
    shrunk: tuple[tuple[str, Row, Verified], ...]
    faults: tuple[tuple[Fault, Outcome], ...]

    @property
    def not_equal(self) -> list[Row]:
        """Plans that are not equal to one device."""
        rows = (*self.composed, *(row for _, row, _ in self.shrunk))
        return [row for row in rows if not row.outcome.equal]

    @property
    def not_seen(self) -> list[Fault]:
        """Faults that the check which should see them has not seen."""
        return [fault for fault, outcome in self.faults if not fault.is_seen(outcome)]

    @property
    def not_covered(self) -> int:
        """Combinations of the large plans' features that no small plan has."""
        return sum(
            len(found.not_covered) for found in {id(found): found for *_, found in self.shrunk}.values()
        )


def proof() -> Proof:
    """Run all of it: some minutes."""
    return Proof(
        tuple(proven(plan) for plan in compositions()),
        tuple(shrunk()),
        tuple((fault, with_fault(fault)) for fault in FAULTS),
    )


def page(found: Proof) -> str:
    """The page that is kept under ``benchmarks/``."""
    rows = (*found.composed, *(row for _, row, _ in found.shrunk))
    worst = max(row.outcome.worst.value for row in rows)
    return f"""# Plans proven equal to one device

Three optimizer steps in fp64 on forked CPU ranks against plain PyTorch in one process, by version {__version__} on
{date.today().isoformat()}; made by `python benchmarks/verify.py --write`. Errors are relative, the worst of all steps
and parameters as `meshwright verify` defines them ([docs](../docs/verify.md)); the bound is {BOUND:.0e}. "exact": every
rank logged the exchanges of its Program, action by action, and copies of shards on several ranks are the same bits.

Plans equal: {len(rows) - len(found.not_equal)} of {len(rows)}; the largest error is {worst:.1e}.
Combinations of the large plans' features not covered: {found.not_covered}.
Faults seen: {len(found.faults) - len(found.not_seen)} of {len(found.faults)}.

## Compositions

Tiny models of every family, {SEQ_LEN} tokens a sequence, {len(found.composed) - COUNT - SPREAD_COUNT} plans by
hand, {COUNT} drawn so that pairs of choices meet, and {SPREAD_COUNT} drawn with a vocabulary that is spread over the
pipeline ranks (`1f1b+vocab-1`). "2 × 1": two micro-batches of one sequence.

{composed_table(found.composed)}
## Plans for many devices, shrunk

{shrunk_table(found.shrunk)}
## Faults

Each is one change inside the ranks (`tests/runtime/faults/fault_cases.py`).

{fault_table(found.faults)}"""


if __name__ == "__main__":
    everything = proof()
    print(page(everything))
    if "--write" in sys.argv[1:]:
        (HERE / "verify.md").write_text(page(everything), encoding="utf-8")
    sys.exit(bool(everything.not_equal or everything.not_seen or everything.not_covered))
