"""The plan key ``dtypes``: element types of gradients, messages and optimizer states."""

from typing import Literal

from meshwright.plans.files.strict_types import Strict

GradientType = Literal["fp32", "bf16", "fp16"]
GatherType = Literal["fp32", "bf16", "fp16", "fp8"]
MasterType = Literal["fp32", "fp16", "none"]
MomentType = Literal["fp32", "bf16", "fp16", "fp8"]


class Dtypes(Strict):
    """Element types of states. A missing key has the stack's own type, or follows a key that the stack ties to it.

    ``gradient``: where gradients are accumulated; ``reduce``: gradients on the wire; ``gather``: parameters on the
    wire; ``master``: the optimizer's copy of the parameters, ``none`` where the parameter is the only one.
    """

    gradient: GradientType | None = None
    reduce: GradientType | None = None
    gather: GatherType | None = None
    master: MasterType | None = None
    first_moment: MomentType | None = None
    second_moment: MomentType | None = None

    @property
    def written(self) -> dict[str, str]:
        """The keys that have a value."""
        return {key: str(value) for key, value in self.to_data().items()}
