"""Precision of old job files: the converters that change the model's linear layers, and the recipe of their scales."""

from collections.abc import Mapping

from meshwright.frameworks.importing.imported_file import Fact, UnmappedOption
from meshwright.frameworks.torchtitan.importing.release_keys import Given
from meshwright.frameworks.torchtitan.options import PRECISION

CONVERTERS = "model.converters"
FLOAT8, MX = "quantize.linear.float8", "quantize.linear.mx"
NEWEST = {"float8": FLOAT8, "mx": MX}
"""Converters that 0.1.0 calls otherwise."""
PRECISIONS = {FLOAT8: "fp8", MX: "mxfp8"}
GROUPED = ("quantize.grouped_mm.float8", "quantize.grouped_mm.mx")
RECIPE, FILTER = f"{FLOAT8}.recipe_name", f"{FLOAT8}.filter_fqns"
RECIPES = {"tensorwise": "tensorwise", "rowwise": "rowwise", "rowwise_with_gw_hp": "rowwise"}
DEFAULT_RECIPE = "tensorwise"


def quantization(values: Mapping[str, Given]) -> tuple[dict[str, Fact], tuple[UnmappedOption, ...]]:
    """Return precision and recipe where a converter is on, and what is lost."""
    given = values.get(CONVERTERS, Given([], ""))
    converters = given.value if isinstance(given.value, list) else str(given.value).split(",")
    chosen = {NEWEST.get(str(name).strip(), str(name).strip()) for name in converters} - {""}
    words = f"{given.key} {','.join(map(str, converters))}"
    linear = next((name for name in PRECISIONS if name in chosen), None)
    facts = {PRECISION: Fact(PRECISIONS[linear], words)} if linear else {}
    facts |= _recipe(values.get(RECIPE)) if linear == FLOAT8 else {}
    return facts, (*_lost_converters(chosen, words), *(_lost_details(values) if FLOAT8 in chosen else ()))


def _recipe(given: Given | None) -> dict[str, Fact]:
    if given is None:
        return {"workload.fp8_recipe": Fact(DEFAULT_RECIPE, "no recipe_name: tensorwise")}
    known = RECIPES.get(str(given.value))
    return {} if known is None else {"workload.fp8_recipe": Fact(known, given.words)}


def _lost_converters(chosen: set[str], words: str) -> list[UnmappedOption]:
    key, _, value = words.partition(" ")
    unknown = sorted(chosen - {*PRECISIONS, *GROUPED})
    found = [UnmappedOption(key, name[:80], "a converter that no plan has a word for") for name in unknown]
    if chosen & {*GROUPED} and not chosen & {*PRECISIONS}:
        why = "products of experts alone in 8 bit are priced as the others, in 16 bit"
        found.append(UnmappedOption(key, value, why))
    return found


def _lost_details(values: Mapping[str, Given]) -> list[UnmappedOption]:
    gathered = values.get(f"{FLOAT8}.enable_fsdp_float8_all_gather")
    kept, recipe = values.get(FILTER), values.get(RECIPE)
    found = []
    if gathered and gathered.value is True:
        why = "parameters are gathered in 16 bit: a longer step than with 8 bit"
        found.append(UnmappedOption(gathered.key, "true", why))
    if kept and kept.value:
        found.append(
            UnmappedOption(kept.key, str(kept.value)[:80], "all linear layers of a block are priced in 8 bit")
        )
    if recipe and recipe.value == "rowwise_with_gw_hp":
        why = "gradients of weights in 16 bit are priced in 8 bit"
        found.append(UnmappedOption(recipe.key, str(recipe.value), why))
    return found
