"""What we think a stack does, as JSON-ready data: every fact of its file and every default."""

from dataclasses import asdict

from meshwright.stack.stack import Stack


def describe_stack(stack: Stack) -> dict[str, object]:
    """All fields of the stack, with ``id`` and the degrees of parallelism it offers."""
    axes = ("tp", "pp", "cp", "ep", "etp")
    facts = {name: value for name, value in asdict(stack).items() if name not in axes}
    lists = {name: list(value) for name, value in facts.items() if isinstance(value, tuple)}
    return {"id": stack.id, **facts, **lists, "axes": {name: getattr(stack, name) for name in axes}}
