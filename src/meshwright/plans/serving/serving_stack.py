"""The engines that a serving plan may name as its stack."""

from collections.abc import Iterator

from meshwright.errors import Problem, nearest

ENGINES = ("vllm", "sglang", "tensorrt-llm", "generic-serving")
"""Stacks that serve; the last one stands for an engine of any other name."""


def engine_problems(stack: str) -> Iterator[Problem]:
    """Yield a stack that does not serve; a release may follow ``@``."""
    name, _, release = stack.partition("@")
    if name not in ENGINES:
        yield Problem("stack", stack, "is no engine that serves", nearest(name, ENGINES))
    elif "@" in stack and not release:
        yield Problem("stack", stack, "has no release behind @", f"stack: {name}")
