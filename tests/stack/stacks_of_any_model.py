"""Stacks without what they say of models: for tests that make models of their own."""

from dataclasses import replace

from meshwright.stack.load import load_stack
from meshwright.stack.stack import Stack


def stack_of_any_model(name: str) -> Stack:
    """The facts of a stack that has every model, whatever is known of its arithmetic; it has no limits of its own."""
    return replace(load_stack(name), models=None, name=f"{name.partition('@')[0]}-of-any-model")
