"""Apply a file's facts about the stack: overlap, gradient type, attention kernels."""

from dataclasses import asdict, fields, replace

from meshwright.frameworks.importing.imported_file import ImportedFile
from meshwright.plans.files.plan_file import plan_text
from meshwright.stack.stack import Stack, file_rows

PREFIX = "stack."
DATA_PARALLEL = ("overlap_gradient_reduction", "overlap_parameter_gather", "gradient_communication_bytes")


def changed_stack(foreign: ImportedFile, stack: Stack, *, dp: int) -> Stack:
    """Return the stack as the file runs it, unchanged where the file sets nothing. ``dp``: ranks that reduce."""
    said = {p.removeprefix(PREFIX): f.value for p, f in foreign.facts.items() if p.startswith(PREFIX)}
    if dp == 1:
        said = {name: value for name, value in said.items() if name not in DATA_PARALLEL}
    if foreign.value("sharding", "none") == "none":
        said.pop("overlap_parameter_gather", None)
    changes = {name: value for name, value in said.items() if getattr(stack, name) != value}
    if not changes:
        return stack
    told = ", ".join(f"{name} = {value}" for name, value in changes.items())
    source = f"{stack.source}; as a {foreign.source} file runs it: {told}"
    return replace(stack, **changes, source=source)


def stack_text(stack: Stack) -> str:
    """Return a stack as the text of a stack file, without defaults."""
    usual = {field.name: field.default for field in fields(Stack)}
    said = {name: value for name, value in asdict(stack).items() if value != usual[name]}
    return plan_text(said | file_rows(stack))
