"""Apply a file's facts about the stack: overlap, gradient type, attention kernels."""

from dataclasses import asdict, replace

from meshwright.frameworks.importing.imported_file import ImportedFile
from meshwright.plans.files.plan_file import plan_text
from meshwright.stack.stack import Stack, file_fields, file_rows
from meshwright.stack.state_types import BYTES, HALF, KEYS, allowed_types, half_of

PREFIX = "stack."
WIDTHS = {"gradient": "gradient_bytes", "reduce": "gradient_communication_bytes"}
"""Facts of a stack for element types that plans for it do not write."""
DATA_PARALLEL = ("overlap_gradient_reduction", "overlap_parameter_gather", "gradient_communication_bytes")


def changed_stack(foreign: ImportedFile, stack: Stack, *, dp: int) -> Stack:
    """Return the stack as the file runs it, unchanged where the file sets nothing. ``dp``: ranks that reduce."""
    said = {p.removeprefix(PREFIX): f.value for p, f in foreign.facts.items() if p.startswith(PREFIX)}
    precision = foreign.value("workload.precision", "bf16")
    unsaid = _types(foreign, precision).keys() - said_types(foreign, stack, precision).keys()
    said |= {WIDTHS[key]: BYTES[_types(foreign, precision)[key]] for key in sorted(unsaid) if key in WIDTHS}
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


def said_types(foreign: ImportedFile, stack: Stack, precision: str) -> dict[str, str]:
    """Return the element types of a file that a plan may write for the stack, by key of ``dtypes``."""
    allowed = allowed_types(stack, precision)
    return {key: word for key, word in _types(foreign, precision).items() if word in allowed[key]}


def _types(foreign: ImportedFile, precision: str) -> dict[str, str]:
    found = {key: foreign.value(f"dtypes.{key}") for key in KEYS}
    half = half_of(precision)
    return {key: half if word == HALF else word for key, word in found.items() if word is not None}


def stack_text(stack: Stack) -> str:
    """Return a stack as the text of a stack file, without defaults."""
    usual = {field.name: field.default for field in file_fields()}
    said = {name: value for name, value in asdict(stack).items() if name in usual and value != usual[name]}
    return plan_text(said | file_rows(stack))
