"""Laws on the limits of a batch: every rank has a sequence, and an iteration computes at least one block."""

from collections.abc import Iterator

from meshwright.errors import Problem
from meshwright.plans.serving.rules.serving_rule_input import ServingRule, ServingRuleInput


def sequences_of_ranks(case: ServingRuleInput) -> Iterator[Problem]:
    """max_sequences ≥ attention_dp: a rank without a sequence would compute nothing."""
    for name, pool in case.plan.pools.items():
        most, ranks = pool.batching.max_sequences, max(one.attention_dp for one in pool.layouts.values())
        if most is not None and most < ranks:
            rule = f"max_sequences = {most} < attention_dp = {ranks}: each rank has sequences of its own"
            yield Problem(f"pools.{name}.batching.max_sequences", most, rule, f"max_sequences: {ranks}")


def tokens_of_iterations(case: ServingRuleInput) -> Iterator[Problem]:
    """chunk_tokens ≥ block_tokens: a chunk of a prompt fills whole blocks."""
    for name, pool in case.plan.pools.items():
        chunk, block = pool.batching.chunk_tokens, pool.batching.block_tokens
        if chunk < block:
            rule = f"chunk_tokens = {chunk} < block_tokens = {block}: a chunk fills whole blocks"
            yield Problem(f"pools.{name}.batching.chunk_tokens", chunk, rule, f"chunk_tokens: {block}")


BATCHING_RULES: tuple[ServingRule, ...] = (sequences_of_ranks, tokens_of_iterations)
