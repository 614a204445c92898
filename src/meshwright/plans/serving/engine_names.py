"""The engines that a serving plan may name as its stack."""

from collections.abc import Iterator

from meshwright.errors import Problem, nearest
from meshwright.stack.serving.serving_stack import ENGINES, NamedEngine


def engine_problems(stack: str) -> Iterator[Problem]:
    """Yield a stack that does not serve; a release may follow ``@``."""
    engine = NamedEngine.of(stack)
    if engine.name not in ENGINES:
        yield Problem("stack", stack, "is no engine that serves", nearest(engine.name, ENGINES))
    elif "@" in stack and not engine.release:
        yield Problem("stack", stack, "has no release behind @", f"stack: {engine.name}")
