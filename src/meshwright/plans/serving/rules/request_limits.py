"""Laws on requests: shares that sum to 1, a prefix inside of every prompt, lengths that the model has positions for."""

from collections.abc import Iterator
from math import fsum

from meshwright.errors import Problem
from meshwright.model.architecture import Architecture
from meshwright.plans.rules.batch_and_pipeline import position_problems
from meshwright.plans.serving.rules.serving_rule_input import ServingRule, ServingRuleInput
from meshwright.workload.serving.request_lengths import SHARE_TOLERANCE


def shares_of_lengths(case: ServingRuleInput) -> Iterator[Problem]:
    """Require shares of a histogram that sum to 1."""
    shares = [share for _, _, share in case.plan.workload.lengths.pairs]
    whole = fsum(shares)
    if abs(whole - 1) > SHARE_TOLERANCE:
        rule = f"shares sum to {whole:.6g}, not 1"
        hint = f"shares {', '.join(f'{share / whole:.6g}' for share in shares[:8])}"
        yield Problem("workload.lengths", len(shares), rule, hint)


def prefix_of_prompts(case: ServingRuleInput) -> Iterator[Problem]:
    """Require a prefix shorter than every prompt: a token at least is a request's own."""
    lengths = case.plan.workload.lengths
    shortest = min(tokens for tokens, _, _ in lengths.pairs)
    if lengths.prefix_tokens >= shortest:
        rule = f"prefix_tokens = {lengths.prefix_tokens} ≥ {shortest} tokens of the shortest prompt"
        yield Problem("workload.prefix_tokens", lengths.prefix_tokens, rule, f"prefix_tokens: {shortest - 1}")


def positions_of_requests(case: ServingRuleInput) -> Iterator[Problem]:
    """Hold prompt and written tokens together against the model's positions."""
    if case.arch is None:
        return
    lengths = case.plan.workload.lengths
    prompt, written = max(((prompt, written) for prompt, written, _ in lengths.pairs), key=sum)
    field = "workload.input_tokens" if len(lengths.pairs) == 1 else "workload.lengths"
    yield from request_position_problems(case.arch, prompt, written, field)


def request_position_problems(arch: Architecture, prompt: int, written: int, field: str) -> Iterator[Problem]:
    """Yield a request longer than the model's positions: an error where each position has a learned row."""
    most, described = arch.max_positions, f"input_tokens + output_tokens = {prompt} + {written}"
    hint = f"input_tokens: {most - written}" if written < most else f"both at most {most} together"
    yield from position_problems(arch, prompt + written, field, described, hint)


def written_tokens(case: ServingRuleInput) -> Iterator[Problem]:
    """Warn where requests of one written token have a limit or a pool for the tokens after it."""
    workload = case.plan.workload
    if not workload.lengths.prefill_only:
        return
    if workload.objectives.tpot_ms is not None:
        rule = "requests write one token, so there is no time of a further one"
        limit = workload.objectives.tpot_ms
        yield Problem("workload.objectives.tpot_ms", limit, rule, "take it out", "warning")
    for name, pool in case.plan.pools.items():
        if pool.does == "decode":
            rule = "requests write one token, in prefill: the pool has nothing to do"
            hint = "take the pool out, or output_tokens: 2"
            yield Problem(f"pools.{name}.does", pool.does, rule, hint, "warning")


REQUEST_RULES: tuple[ServingRule, ...] = (
    shares_of_lengths,
    prefix_of_prompts,
    positions_of_requests,
    written_tokens,
)
