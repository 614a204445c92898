"""The stack of a plan that serves: what its engine does by default, and three numbers fitted on measured runs.

Ours are ``files/NAME.yaml``. The name is the engine's without a release; facts are those of the release in the file.
"""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Annotated

from pydantic import Field

from meshwright.plans.files.meshwright_file import FileKind, read_keys
from meshwright.plans.files.strict_types import Strict
from meshwright.plans.files.validation_messages import validated

GENERIC_ENGINE = "generic-serving"
ENGINES = ("vllm", "sglang", "tensorrt-llm", GENERIC_ENGINE)
"""Stacks that serve; the last one stands for an engine of any other name."""
SERVING_STACK = FileKind("stack", ("name", "release", "source"))
Text = Annotated[str, Field(min_length=1, max_length=2000)]
Seconds = Annotated[float, Field(ge=0, le=10)]


class FittedSeconds(Strict):
    """An engine's seconds outside kernels, fitted on whole rows of measured runs.

    ``host_s`` in each stage of an iteration that no kernel hides, ``sequence_s`` more for each sequence in it,
    ``prompt_s`` of a prompt outside iterations: HTTP, tokens, scheduling. ``origin``: how they were fitted.
    """

    host_s: Seconds
    sequence_s: Seconds
    prompt_s: Seconds
    origin: Text


class ServingStack(Strict):
    """An engine.

    ``chunk_tokens`` of an iteration and ``max_sequences`` of a rank of attention_dp by default; ``kv_fraction``: share
    of the memory beside weights and activations that the cache takes; ``kept_free_bytes``: of a device, that the engine
    cannot ask for; ``reserved_output``: share of a request's output
    that has room in the cache in the mean; ``mixed_batches``: prompts run in the iterations of sequences that decode;
    ``align_iterations``: how long a prompt waits for those of other ranks of attention_dp.
    """

    name: Text
    release: Text
    source: Text
    chunk_tokens: Annotated[int, Field(ge=1)]
    max_sequences: Annotated[int, Field(ge=1)]
    kv_fraction: Annotated[float, Field(gt=0, le=1)]
    kept_free_bytes: Annotated[float, Field(ge=0)] = 0.0
    reserved_output: Annotated[float, Field(gt=0, le=1)]
    mixed_batches: bool
    align_iterations: Annotated[int, Field(ge=0)]
    fitted: FittedSeconds


@dataclass(frozen=True, slots=True)
class NamedEngine:
    """The name of a stack that serves, and its release or ""."""

    name: str
    release: str

    @classmethod
    def of(cls, stack: str) -> "NamedEngine":
        """Return the parts of ``name`` or ``name@release``."""
        name, _, release = stack.partition("@")
        return cls(name, release)


@cache
def load_serving_stack(stack: str) -> ServingStack:
    """Return the facts of an engine by its name, with or without a release; of another name, the generic ones."""
    name = NamedEngine.of(stack).name
    file = files("meshwright.stack.serving") / "files" / f"{name if name in ENGINES else GENERIC_ENGINE}.yaml"
    return validated(ServingStack, read_keys(file.read_text(encoding="utf-8"), file.name, SERVING_STACK, []))
