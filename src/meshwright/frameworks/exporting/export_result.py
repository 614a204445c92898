"""The result of an export, and the protocol of exporters."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from meshwright.cluster.cluster import Cluster
from meshwright.model.graph import ModelGraph
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.forms.short import Recompute
from meshwright.stack.stack import Stack


@dataclass(frozen=True, slots=True)
class Refusal:
    """A key of the plan, the model or the stack that the target has no word for, and why that is harmless."""

    key: str
    value: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """Text files by path, relative to a folder of the reader's choice, for one release of one target."""

    target: str
    release: str
    files: Mapping[str, str] = field(default_factory=dict)
    refused: tuple[Refusal, ...] = ()

    def to_json(self) -> dict[str, object]:
        """Return the public form: ``{"files": {path: text}, "refused": [{key, value, why}]}``."""
        return {
            "files": dict(self.files),
            "refused": [{"key": r.key, "value": r.value, "why": r.why} for r in self.refused],
        }


def foreign_stack_refusals(
    stack: Stack, recompute: Recompute, target: str, release: str, selective: str
) -> list[Refusal]:
    """Return the changes when a plan made for another stack runs on ``target``.

    ``selective`` says what the target keeps and recomputes under that word, which every stack means in its own way.
    """
    if stack.name == target:
        return []
    why = f"the files run on {target} {release}; figures for another stack do not carry over"
    refusals = [Refusal("stack", stack.id, why)]
    if recompute == "selective":
        refusals.append(Refusal("recompute", "selective", f"written as the target means it ({selective})"))
    return refusals


class Exporter(Protocol):
    """Writes a legal plan in the words of one target.

    Two kinds of things cannot be said. Where the files would train something else than the plan, or spread it
    in another way, UnsupportedError is raised with one problem for each such key, and no file is made. Where
    the step is the same in its degrees, order and states but something beside it is left unsaid (the stack
    that the figures were made for, details of a model that no fact here describes), the files are made and
    ``refused`` names the key.
    """

    def __call__(self, plan: LongPlan, model: ModelGraph, cluster: Cluster, stack: Stack) -> Export:
        """Return the files for ``plan``. Raises UnsupportedError with everything that the target cannot express."""
        ...
