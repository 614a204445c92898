"""Import from Megatron-Bridge 0.6.2: override trees, override words, and the recipes that they change.

What a known recipe sets in Python is taken from ``frameworks/megatron_bridge/megatron-bridge-0.6.2-recipes.csv``,
and the file's own fields stand above it; of a recipe that is not there only its model and its precision are known,
by name. Bridge skips a field of a YAML file that it does not know and refuses such a word on the command line.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from meshwright.errors import Problem, Severity, nearest
from meshwright.frameworks.importing.command_line import GivenOption
from meshwright.frameworks.importing.config_values import ConfigValues, shown
from meshwright.frameworks.importing.imported_file import (
    ALONE,
    Fact,
    ImportedFile,
    OutsideFacts,
    UnmappedOption,
)
from meshwright.frameworks.importing.unknown_keys import MOST
from meshwright.frameworks.megatron.importing.importer import DEVICES
from meshwright.frameworks.megatron.importing.unread_options import unread_options
from meshwright.frameworks.megatron_bridge.importing.adapter_section import adapter_facts, unread_adapter
from meshwright.frameworks.megatron_bridge.importing.option_conflicts import config_rules
from meshwright.frameworks.megatron_bridge.importing.options_to_plan import Facts, config_facts
from meshwright.frameworks.megatron_bridge.importing.override_text import (
    PLAN_NAME,
    SECTIONS,
    BridgeOverrides,
    read_overrides,
)
from meshwright.frameworks.megatron_bridge.options import TABLE
from meshwright.frameworks.megatron_bridge.recipes import model_of, recipe_names, recipe_settings
from meshwright.plans.files.yaml_text import read_value

CLOSED = ("train", "ddp", "dist")
"""Sections of which every name is known; models and data sets of other kinds have fields of their own."""
OPEN = ("model", "mixed_precision", "comm_overlap", "optimizer")
UNASKED = (None, False, "", (), 0, "none", "no_shard", "torch.float32")
"""Values that ask for nothing; 32 bit is what states have anyway."""
PRECISIONS: Mapping[str, tuple[str, str | None]] = {
    "bf16": ("bf16", None),
    "fp8cs": ("fp8", "current"),
    "fp8sc": ("fp8", "blockwise"),
    "fp8mx": ("mxfp8", None),
    "nvfp4": ("nvfp4", None),
}
"""Precisions in the names of recipes, with the recipe of fp8: current or sub-channel scaling."""


def import_bridge(text: str, outside: OutsideFacts = ALONE) -> ImportedFile:
    """Read a file for Megatron-Bridge. Raises InputError if it cannot be parsed."""
    said = read_overrides(text)
    problems = [*said.problems, *_unknown(said)]
    settings = _settings(said, problems)
    facts = config_facts(settings, outside)
    facts |= _recipe_facts(said, facts, problems) | _devices(said.options)
    facts |= adapter_facts(settings)
    config_rules(settings, facts, said.variables)
    return ImportedFile(
        source="bridge",
        release=TABLE.full_name,
        facts=facts,
        unread=(*_recipe_unread(said), *unread_adapter(settings), *_unread(settings)),
        problems=tuple(problems),
    )


def _settings(said: BridgeOverrides, problems: list[Problem]) -> ConfigValues:
    """Merge the file's fields over those of its recipe; a section that the file sets whole is the file's."""
    defaults = recipe_settings(said.recipe or "") or {}
    kept = {
        path: _cell(value) for path, value in defaults.items() if path.partition(".")[0] not in said.values
    }
    labels = {path: f"{path} of {said.recipe}" for path in kept if path not in said.values}
    return ConfigValues({**kept, **said.values}, labels, problems)


def _cell(text: str) -> Any:
    """Parse a cell of the table: a number, true, false, or text."""
    return text if "|" in text else read_value(text, "recipe")


def _recipe_facts(said: BridgeOverrides, facts: Facts, problems: list[Problem]) -> Facts:
    """Return the facts in a recipe's name, with a remark if nothing else is known of it."""
    if said.recipe is None:
        return {}
    found: Facts = {}
    row = model_of(said.recipe)
    if row and row.model:
        found["model"] = Fact(row.model, said.recipe)
    else:
        rule = "its model is not in the zoo"
        problems.append(Problem("recipe", said.recipe, rule, "--model config.json", "warning"))
    if re.search("_(?:sft|finetune)_", said.recipe):
        found["workload.task"] = Fact("sft", said.recipe)
    if recipe_settings(said.recipe) is None:
        rule = f"is none of the recipes of {TABLE.full_name} that we know: what it sets by itself is not read"
        hint = nearest(said.recipe, recipe_names())
        problems.append(Problem("recipe", said.recipe, rule, hint, "warning"))
    named = re.search(rf"_({'|'.join(PRECISIONS)})_", said.recipe)
    if named and "workload.precision" not in facts:
        precision, fp8_recipe = PRECISIONS[named.group(1)]
        found["workload.precision"] = Fact(precision, said.recipe)
        if fp8_recipe is not None:
            found["workload.fp8_recipe"] = Fact(fp8_recipe, said.recipe)
    return found


def _recipe_unread(said: BridgeOverrides) -> Iterator[UnmappedOption]:
    row = model_of(said.recipe) if said.recipe else None
    if said.recipe and row and row.remark:
        yield UnmappedOption("recipe", said.recipe, row.remark)
    if said.recipe and "_peft_" in said.recipe and "peft.dim" not in said.values:
        why = "adapters: the plan trains the whole model, for the file has no section peft"
        yield UnmappedOption("recipe", said.recipe, why)


def _devices(options: Mapping[str, GivenOption]) -> Facts:
    """Nodes times processes per node, where the script starts them itself."""
    given = [next((options[n] for n in names if n in options), None) for names in DEVICES.values()]
    numbers = [one for one in given if one and one.known and one.values and one.values[0].isdecimal()]
    if len(numbers) < len(DEVICES):
        return {}
    nodes, each = (int(one.values[0][:9]) for one in numbers)
    words = " ".join(f"{one.name} {one.values[0]}" for one in numbers)
    return {"devices": Fact(nodes * each, words)}


def _unread(settings: ConfigValues) -> Iterator[UnmappedOption]:
    """Fields without a counterpart, by the reasons that Megatron's options of the same name have."""
    options: dict[str, GivenOption] = {}
    labels: dict[str, str] = {}
    for path, value in settings.values.items():
        if value in UNASKED or path.startswith("peft."):
            continue
        option = "--" + path.rpartition(".")[2].replace("_", "-")
        words = tuple(map(str, value)) if isinstance(value, tuple) else () if value is True else (str(value),)
        options[option] = GivenOption(settings.label(path), words, 0)
        labels[option] = settings.label(path)
    for unread in unread_options(options):
        yield UnmappedOption(labels.get(unread.key, unread.key), unread.value or "true", unread.why)


def _unknown(said: BridgeOverrides) -> Iterator[Problem]:
    """Yield fields that Bridge lacks and that could concern a plan, up to a limit."""
    names = TABLE.names
    found = [path for path in said.values if _is_doubtful(path) and not _is_field(path, names)]
    for path in found[:MOST]:
        refused = said.words and path not in said.added
        rule = f"is no field of {TABLE.full_name}, which {'refuses' if refused else 'skips'} it"
        section = path.partition(".")[0]
        siblings = {known for known in names if known.startswith(f"{section}.")} or names
        severity: Severity = "error" if refused else "warning"
        hint = nearest(path[:200], siblings)
        yield Problem(path[:200], shown(said.values[path]), rule, hint, severity)
    if found[MOST:]:
        rule = "so many more fields are unknown"
        yield Problem("file", len(found) - MOST, rule, "leave them out", "warning")


def _is_doubtful(path: str) -> bool:
    """Return true for an unknown name that could concern a plan: any in a closed section, a known word elsewhere."""
    section, _, name = path.partition(".")
    may_be = section in OPEN or section not in SECTIONS
    telling = section in CLOSED or (may_be and PLAN_NAME.search(path) is not None)
    return telling and not name.startswith("_")


def _is_field(path: str, names: frozenset[str]) -> bool:
    """Return true if Bridge has the field, or one that holds it as a mapping."""
    parts = path.split(".")
    return path in names or any(".".join(parts[:depth]) in names for depth in range(2, len(parts)))
