"""Rules on the form of context parallelism: what it divides, and what the stack has."""

from collections.abc import Iterator
from math import gcd

from meshwright.errors import Problem
from meshwright.plans.context_parallel import HEADS_ALONE, USUAL, Context
from meshwright.plans.rules.rule_input import Rule, RuleInput, largest_divisor


def context_dimensions(case: RuleInput) -> Iterator[Problem]:
    """Check that the inner degree divides cp, and that the outer ranks are as many as the form needs."""
    context, cp = case.layout.context_in_full, case.grid.cp
    multiple, ring = context.kind.ring_multiple, cp // context.heads(cp)
    if ring > 1 and ring % multiple:
        rule = f"{context.form} has a multiple of {multiple} ranks with parts of a sequence, not {ring}"
        yield Problem("layout.context", str(context), rule, f"context: {USUAL.form}")
    if context.ulysses == 1:
        return
    field = "layout.context.ulysses"
    if context.kind.whole_sequences:
        yield Problem(field, context.ulysses, f"form {context.form} is over all of cp", "leave it out")
    elif cp % context.ulysses:
        rule = f"cp % ulysses = {cp} % {context.ulysses} = {cp % context.ulysses} ≠ 0"
        yield Problem(field, context.ulysses, rule, _fewer(case, largest_divisor(cp, context.ulysses)))
    elif cp == context.ulysses > 1:
        rule = f"ulysses {context.ulysses} is all of cp, so nothing is left for form {context.form}"
        yield Problem(field, context.ulysses, rule, f"context: {HEADS_ALONE.form}")


def context_heads(case: RuleInput) -> Iterator[Problem]:
    """Ranks that exchange heads have whole ones: queries', and keys' where they are not made for every query head."""
    cp, tp = case.grid.cp, case.grid.tp
    heads = case.layout.context_in_full.heads(cp)
    counts = {"heads": case.arch.heads, "kv_heads": case.arch.kv_heads}
    if cp == 1 or heads == 1 or any(count % tp for count in counts.values()):
        return
    most = largest_divisor(gcd(*(count // tp for count in counts.values())), heads)
    for name, count in counts.items():
        if count // tp % heads:
            rule = f"{name}/tp % ulysses = {count}/{tp} % {heads} = {count // tp % heads} ≠ 0"
            yield Problem("layout.context", str(case.layout.context_in_full), rule, _fewer(case, most))


def _fewer(case: RuleInput, most: int) -> str:
    """Return a form that exchanges heads among at most ``most`` ranks."""
    if most == 1:
        return f"context: {USUAL.form}"
    context = case.layout.context_in_full
    form = USUAL.form if context.kind.whole_sequences else context.form
    return f"context: {Context(form=form, ulysses=most).word}"


def stack_contexts(case: RuleInput) -> Iterator[Problem]:
    """Check that the stack has the form, in as many dimensions, and the order of pieces."""
    context, stack = case.layout.context_in_full, case.stack
    if case.grid.cp == 1:
        return
    if stack_name(context) not in stack.contexts and stack.cp:
        rule = f"{stack.id} has {', '.join(stack.contexts)}"
        yield Problem("layout.context", stack_name(context), rule, f"context: {stack.contexts[0]}")
    if context.pieces not in stack.sequence_pieces:
        rule = f"{stack.id} cuts sequences into pieces {' or '.join(stack.sequence_pieces)}"
        yield Problem("layout.context.pieces", context.pieces, rule, f"pieces: {stack.sequence_pieces[0]}")


def stack_name(context: Context) -> str:
    """Return the stack's name of a form: ``ring+ulysses`` in two dimensions."""
    return f"{context.form}+ulysses" if context.two_dimensional else context.form


CONTEXT_RULES: tuple[Rule, ...] = (context_dimensions, context_heads)
