"""Prove plans in which types of states, optimizers, adapters and shares on the host meet one another and every axis.

    python benchmarks/verify_states.py            prints the tables
    python benchmarks/verify_states.py --write    also writes benchmarks/verify-states.md

Exits with 1 where a plan is not equal, or ranks hold other bytes than the ledger counts.
"""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from verify import Row, errors, silent, table

from meshwright import __version__
from meshwright.runtime.verify.case_result import BOUND, UNITS, Outcome
from meshwright.runtime.verify.run_state_case import run_case_and_states

HERE = Path(__file__).parent
# ``verify`` has put the folders of the tests on the path
from covering_plans import Proven  # noqa: E402
from ledger_check import ledger_differences  # noqa: E402
from state_combinations import LEVELS, REFUSED, RULES, combinations_of_states, every_pair, in_words  # noqa: E402


@dataclass(frozen=True)
class Trial:
    """A plan and what its trial has shown; ``ledger`` are differences between what is held and what is counted."""

    row: Row
    ledger: tuple[str, ...]

    @property
    def equal(self) -> bool:
        """True if all comparisons passed."""
        return self.row.outcome.equal and not self.ledger


def tried(words: str, plan: Proven) -> Trial:
    """Run a plan with wide states, with its own, and once more for what its ranks hold."""
    trial = plan.trial()
    outcome = run_case_and_states(trial, silent)
    found = Trial(Row(plan.model, words, plan.ranks, outcome), tuple(ledger_differences(trial)))
    print(f"{'equal' if found.equal else 'DIFFERENT'}: {plan.model}, {words}", file=sys.stderr)
    return found


def plan_table(trials: Iterable[Trial]) -> str:
    """Return the table of plans."""
    return table(
        (
            *("model", "plan", "ranks", "loss", "gradients", "norm", "parameters", "bytes and copies"),
            *("rounded states, in last places", "held"),
        ),
        (
            [
                trial.row.model,
                trial.row.plan,
                trial.row.ranks,
                *errors(trial.row.outcome),
                *_last_cells(trial),
            ]
            for trial in trials
        ),
    )


def _last_cells(trial: Trial) -> tuple[str, str]:
    states = trial.row.outcome.states
    rounded = "–" if states is None else states.failure or f"{states.state.value:.0f}"
    return rounded, "**differs**" if trial.ledger else "as counted"


def refused_table() -> str:
    """Return the table of levels that no plan has together."""
    return table(
        ("factor", "levels", "factor", "levels", "what `meshwright check` says"),
        ([one, ", ".join(a), other, ", ".join(b), reason] for one, a, other, b, reason in RULES),
    )


def comparison_table(outcomes: list[Outcome]) -> str:
    """Return the table of comparisons, with the largest error of each."""
    plain, noisy = (
        max(o.worst.value for o in outcomes if (o.magnified > 1) == magnified) for magnified in (False, True)
    )
    states = [outcome.states for outcome in outcomes if outcome.states]
    rounded = max(of.state.value for of in states)
    fp64 = "losses, gradients, norms and parameters after three steps in fp64, with wide states"
    noise = "the same with `zo-sgd`: both losses, the gradient along the noise, parameters"
    own = (
        f"states and parameters in a plan's own types after three steps ({len(states)} plans), in last places"
    )
    held = "bytes of parameters, optimizer states, a frozen base and activations that ranks hold in bf16"
    return table(
        ("comparison", "bound", "largest error"),
        (
            (fp64, f"{BOUND:.0e}", f"{plain:.1e}"),
            (noise, f"{BOUND:.0e}", f"{noisy:.1e}"),
            (own, f"{UNITS:.0f}", f"{rounded:.0f}"),
            ("bytes of every exchange and copy", "equal", 'see "bytes and copies"'),
            (held, "equal", 'see "held"'),
        ),
    )


def page(trials: list[Trial]) -> str:
    """Return the page."""
    factors = "; ".join(f"{factor}: {', '.join(levels)}" for factor, levels in LEVELS.items())
    pairs = len(set(every_pair()) - REFUSED.keys())
    comparisons = comparison_table([trial.row.outcome for trial in trials])
    return f"""# Types of states, optimizers, adapters and host memory, proven together

By version {__version__} on {date.today().isoformat()} with `python benchmarks/verify_states.py --write`.
Plans are drawn so that every two levels of different factors meet in at least one of them: {pairs} pairs in
{len(trials)} plans on at most 8 ranks. {len(REFUSED)} pairs are refused by the checks of plans, and are listed below.

Plans that pass all comparisons: {sum(trial.equal for trial in trials)} of {len(trials)}.

{comparisons}
The comparisons are those of [verify](../docs/verify.md); B of an adapter is drawn at random. Errors in fp64 are
relative. `zo-sgd` divides a difference of two losses by 2ε = 0.002, which magnifies rounding.
What "as counted" allows is written in `tests/runtime/plan_sets/ledger_check.py`; under `zero3` the ledger also counts
the 16-bit shard of trained parameters, which the runtime makes of the master copy for each gather only.

Factors: {factors}. The first level of each is left out in the table.

## Plans

{plan_table(trials)}
## Refused pairs

{refused_table()}"""


if __name__ == "__main__":
    everything = [tried(in_words(levels), plan) for levels, plan in combinations_of_states()]
    print(page(everything))
    if "--write" in sys.argv[1:]:
        (HERE / "verify-states.md").write_text(page(everything), encoding="utf-8")
    sys.exit(not all(trial.equal for trial in everything))
