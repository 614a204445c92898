"""The base of every type in a plan file: frozen, unknown keys are errors, no silent conversions."""

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """A frozen mapping that refuses unknown keys and values of another type (``"4"`` is not 4)."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
