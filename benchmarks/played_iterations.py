"""Hold the closed forms of serving against the Program, on random legal replicas of zoo models.

    python benchmarks/played_iterations.py            prints the tables
    python benchmarks/played_iterations.py --write    also writes benchmarks/played-iterations.md

A replica's iterations are lowered to a forward-only Program and played until they are steady, with a micro-batch under
way for each stage; ``cost/serving/iteration.py`` has the same seconds in closed form. The cache of its sequences is
counted from the state table. A cache that moves from one replica to another is moved rank by rank;
``cost/serving/kv_transfers.py`` has its seconds in closed form. Takes about half a minute.
"""

import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import NamedTuple

import numpy as np

from meshwright import __version__
from meshwright.cost.operators.pass_prices import reshard_seconds
from meshwright.cost.serving.iteration import iteration_seconds
from meshwright.cost.serving.kv_transfers import cache_transfer
from meshwright.program.serving.cache_reshard import hand_over_bytes
from meshwright.program.serving.iteration_program import Iterations, Replica, iteration_program
from meshwright.program.serving.kv_bytes import sequence_cache_bytes
from meshwright.simulate.serving.iteration_player import steady_iteration

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "simulate" / "serving"))
from replica_draws import DEVICES, MODELS, MOST_DEVICES, PHASES, Draw, draw

PAGE = Path(__file__).with_name("played-iterations.md")
DRAWS = 900
HAND_OVERS = 450
APART = len(MODELS) * len(PHASES)
"""Seeds so far apart draw the same model."""
BOUND = 0.03


class Held(NamedTuple):
    """A draw with closed form over played time, less 1, and the same where messages keep their senders."""

    drawn: Draw
    error: float
    blocking_error: float
    cache_exact: bool


def held(seed: int) -> Held:
    """Hold the closed forms of one draw against its Program."""
    one = draw(seed)
    cost, load = one.cost, one.load
    closed = float(iteration_seconds(cost, load))
    played, blocking = (steady_iteration(cost, load, occupancy).step_s for occupancy in (0.0, 1.0))
    replica = Replica(
        model=cost.model, degrees=cost.degrees, formats=cost.formats, block_tokens=one.block_tokens
    )
    program = iteration_program(replica, Iterations(load=load, caches=one.caches))
    found = max(program.held_bytes(rank, "cache") for rank in range(program.pipeline_ranks))
    ((tokens, count),) = one.caches.items()
    expected = count * sequence_cache_bytes(cost.model, tokens, cost.degrees, cost.formats, one.block_tokens)
    return Held(one, closed / played - 1, closed / blocking - 1, found == expected)


def hand_over(seed: int) -> tuple[str, float]:
    """Return the model of a hand-over between two draws, and closed form over rank by rank, less 1."""
    sender, receiver = draw(seed), draw(seed + APART)
    cost, degrees, forms = sender.cost, receiver.cost.degrees, sender.cost.times.forms
    tokens = int(10 ** np.random.default_rng(seed).uniform(1, 4.5))
    moved = hand_over_bytes(cost.model, tokens, cost.formats, cost.degrees, degrees, forms.domain)
    closed = cache_transfer(cost.model, cost.times, tokens, cost.formats, cost.degrees, degrees)
    return sender.model, float(closed.seconds / reshard_seconds(moved, forms) - 1)


def percent(value: float) -> str:
    """Return a signed share in percent, zero without a sign."""
    return f"{100 * value:+.1f}%" if round(100 * abs(value), 1) else "0.0%"


def iteration_row(name: str, rows: Sequence[Held]) -> str:
    """Return a row of the table of iterations."""
    errors = [one.error for one in rows]
    blocking = [one.blocking_error for one in rows]
    exact = sum(one.cache_exact for one in rows)
    within = sum(abs(error) <= BOUND for error in errors)
    ends = f"{percent(min(errors))} to {percent(max(errors))}"
    return (
        f"| {name} | {len(rows)} | {within} | {ends} | {percent(min(blocking))} to {percent(max(blocking))} "
        f"| {exact} |"
    )


def hand_over_row(name: str, errors: Sequence[float]) -> str:
    """Return a row of the table of hand-overs."""
    exact = sum(abs(error) < 1e-3 for error in errors)
    return f"| {name} | {len(errors)} | {exact} | {percent(min(errors))} to {percent(max(errors))} |"


def page() -> str:
    """Return the page."""
    rows = [held(seed) for seed in range(DRAWS)]
    moves = [hand_over(seed) for seed in range(HAND_OVERS)]
    piped = {True: "a pipeline", False: "one stage"}
    of_phase = [
        iteration_row(f"{phase}, {piped[several]}", own)
        for phase in PHASES
        for several in (False, True)
        if (own := [o for o in rows if o.drawn.phase == phase and (o.drawn.cost.degrees.pp > 1) == several])
    ]
    of_model = [iteration_row(name, [one for one in rows if one.drawn.model == name]) for name in MODELS]
    handed = [hand_over_row(name, [error for model, error in moves if model == name]) for name in MODELS]
    return f"""# Iterations in closed form and played

Random legal replicas of {len(MODELS)} models with up to {MOST_DEVICES} devices of {len(DEVICES)} kinds: tp, pp,
attention_dp, cp, ep and etp; prompts, sequences that decode, or both; three formats, three block sizes of the cache,
all forms of overlap and all-reduces.
Predictions against predictions, **nothing here was measured**.

- *Within 3%*: the closed form of an iteration's seconds against its Program played
  ([an iteration is a Program](../docs/serving.md#an-iteration-is-a-program)). Of one stage both sum up the same items,
  to which the Program's own meshes give the sizes of groups. Of a pipeline the Program's passes and messages find their
  own times, and the closed form takes the larger of two terms.
- *Messages that keep senders*: the same where no message between stages hides behind another micro-batch.
- *Cache*: plans whose bytes on the fullest rank, counted from the state table, are those of the closed form exactly.

By version {__version__} on {date.today()}; made by `python benchmarks/played_iterations.py --write`.

| iterations | plans | within 3% | closed form over played | messages that keep senders | cache exact |
| --- | --: | --: | --: | --: | --: |
{chr(10).join([*of_phase, *of_model, iteration_row("all", rows)])}

The cache of one sequence, moved between two such replicas: closed form against the busiest rank of the change of
layout. They differ where layers of stages or tokens of cp do not divide each other.

| hand-over | pairs | equal to .1% | closed form over rank by rank |
| --- | --: | --: | --: |
{chr(10).join([*handed, hand_over_row("all", [error for _, error in moves])])}
"""


def main() -> None:
    """Print the page, and write it where asked to."""
    text = page()
    print(text)
    if "--write" in sys.argv[1:]:
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
