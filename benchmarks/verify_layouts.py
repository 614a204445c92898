"""Prove plans whose layers have different layouts, and compare their simulation with what ranks hold.

    python benchmarks/verify_layouts.py            prints the tables
    python benchmarks/verify_layouts.py --write    also writes benchmarks/verify-layouts.md

Exits with 1 where a plan is not equal, or ranks hold other bytes than the ledger counts.
"""

import sys
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from verify import Row, errors, silent, table
from verify_states import Trial

from meshwright import __version__
from meshwright.runtime.verify.case_result import BOUND
from meshwright.runtime.verify.run_state_case import run_case_and_states

HERE = Path(__file__).parent
# ``verify`` has put the folders of the tests on the path
from layout_plans import FACTORS, SHARED, Ranged, every_pair, layout_plans  # noqa: E402
from ledger_check import ledger_differences  # noqa: E402


@dataclass(frozen=True)
class LayoutTrial(Trial):
    """A plan's trial, its changes of layout, and the bytes that they move for a micro-batch."""

    changes: int
    moved: int


def tried(words: str, plan: Ranged) -> LayoutTrial:
    """Run a plan, and once more for what its ranks hold."""
    trial = plan.trial()
    program = trial.program
    inside = {
        (stage, at): segment.reshard
        for (stage, kind), body in program.bodies.items()
        if kind == "F"
        for at, segment in enumerate(body)
        if segment.reshard
    }
    every = [*inside.values(), *program.reshards.values()]
    outcome = run_case_and_states(trial, silent)
    found = LayoutTrial(
        Row(plan.model, words, plan.ranks, outcome),
        tuple(ledger_differences(trial)),
        len(every),
        sum(one.forward.total + one.backward.total for one in every),
    )
    print(f"{'equal' if found.equal else 'DIFFERENT'}: {words}", file=sys.stderr)
    return found


def plan_table(trials: list[LayoutTrial]) -> str:
    """Return the table of plans."""
    return table(
        (
            *("plan", "ranks", "changes of layout", "bytes moved by a micro-batch"),
            *("loss", "gradients", "norm", "parameters", "bytes and copies", "held"),
        ),
        (
            [
                *(trial.row.plan, trial.row.ranks, trial.changes, f"{trial.moved:,}"),
                *errors(trial.row.outcome),
                "**differs**" if trial.ledger else "as counted",
            ]
            for trial in trials
        ),
    )


def page(trials: list[LayoutTrial]) -> str:
    """Return the page."""
    factors = "\n".join(f"- {factor}: {', '.join(levels)}" for factor, levels in FACTORS.items())
    worst = max(trial.row.outcome.worst.value for trial in trials)
    return f"""# Layers of different layouts, proven

By version {__version__} on {date.today().isoformat()} with `python benchmarks/verify_layouts.py --write`.
Plans are drawn so that every two levels of different factors that a plan can have meet in at least one of them:
{len(every_pair())} pairs in {len(trials) - len(SHARED)} plans on 4 or 8 ranks.
The last {len(SHARED)} plans have one layout, with uneven shares of the batch, one also of the states.

Plans that pass all comparisons: {sum(trial.equal for trial in trials)} of {len(trials)}. Largest relative error of
losses, gradients, norms and parameters in fp64: {worst:.1e}; the bound is {BOUND:.0e}. Bytes of every exchange, pieces
of activations between layouts among them, equal the Program's; what ranks hold equals the ledger.

Factors, in the order of the table's words:

{factors}

## Plans

{plan_table(trials)}"""


if __name__ == "__main__":
    everything = [tried(words, plan) for words, plan in layout_plans()]
    print(page(everything))
    if "--write" in sys.argv:
        (HERE / "verify-layouts.md").write_text(page(everything))
    sys.exit(not all(trial.equal for trial in everything))
