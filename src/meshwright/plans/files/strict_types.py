"""The base of every type in a plan file: frozen, unknown keys are errors, no silent conversions."""

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict
from pydantic_core import PydanticKnownError


class Strict(BaseModel):
    """A frozen mapping that refuses unknown keys and values of another type (``"4"`` is not 4).

    ``examples``: lines for keys of a file of this type, where they differ from those of other files.
    """

    examples: ClassVar[Mapping[str, str]] = {}
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True
    )  # a command builds the types that it reads, not those of all files

    def to_data(self) -> dict[str, object]:
        """Plain mappings, lists and scalars as a file holds them: every default shown, None left out."""
        fields = type(self).model_fields
        values = {field.alias or name: getattr(self, name) for name, field in fields.items()}
        return {key: _data(value) for key, value in values.items() if value is not None}


def _number(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PydanticKnownError("float_type")
    return value


Number = Annotated[int | float, BeforeValidator(_number)]
"""A whole or other number, which stays what it is; of anything else there is one problem, not one for each."""


def one_of(names: Callable[[], Iterable[str]]) -> BeforeValidator:
    """Return a validator that accepts the names of a table, with the error of a ``Literal`` of them."""

    def check(value: object) -> object:
        known = tuple(names())
        if isinstance(value, str) and value in known:
            return value
        *others, last = map(repr, known)
        raise PydanticKnownError("literal_error", {"expected": f"{', '.join(others)} or {last}"})

    return BeforeValidator(check)


def name_or_list(value: object) -> str:
    """Return the branch of a union "a name or a list" for a value, so that only that branch reports problems."""
    return "<list>" if isinstance(value, tuple | list) else "<name>"


def number_or_list(value: object) -> str:
    """Return the branch of a union "a number or a list" for a value."""
    return "<list>" if isinstance(value, tuple | list) else "<number>"


def name_number_list_or_mapping(value: object) -> str:
    """Return the branch of a union "a name, a number, a list or a mapping" for a value."""
    if isinstance(value, Mapping | Strict):
        return "<mapping>"
    return name_or_list(value) if isinstance(value, tuple | list) else name_or_number(value)


def name_or_mapping(value: object) -> str:
    """Return the branch of a union "a name or a mapping" for a value."""
    return "<mapping>" if isinstance(value, Mapping | Strict) else "<name>"


def number_or_mapping(value: object) -> str:
    """Return the branch of a union "a number or a mapping" for a value."""
    return "<mapping>" if isinstance(value, Mapping | Strict) else "<number>"


def name_or_number(value: object) -> str:
    """Return the branch of a union "a name or a number" for a value."""
    return "<number>" if isinstance(value, int | float) and not isinstance(value, bool) else "<name>"


def _data(value: object) -> object:
    if isinstance(value, Strict):
        return value.to_data()
    if isinstance(value, Mapping):
        return {key: _data(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_data(item) for item in value]
    return value
