"""Describe a stack as JSON-ready data: every fact of its file, every default, and its limits."""

from dataclasses import asdict

from meshwright.plans.rules.stack_limits import STACK_LIMITS
from meshwright.stack.stack import Stack


def describe_stack(stack: Stack) -> dict[str, object]:
    """All fields of the stack, with ``id``, the degrees of parallelism it offers and what its limits say."""
    axes = ("tp", "pp", "cp", "ep", "etp")
    facts = {name: value for name, value in asdict(stack).items() if name not in axes}
    lists = {name: list(value) for name, value in facts.items() if isinstance(value, tuple)}
    if stack.models is not None:
        lists["models"] = [model.said() for model in stack.models]
    return {
        "id": stack.id,
        **facts,
        **lists,
        "axes": {name: getattr(stack, name) for name in axes},
        "limits": [limit.reason for limit in STACK_LIMITS.get(stack.name, ())],
    }
