"""Import from Hugging Face Accelerate 1.15.0: its YAML configuration.

Source: Accelerate 1.15.0, ``commands/config/config_args.py`` (keys at the top), ``commands/launch.py`` (keys of the
sections become options of ``accelerate launch`` by their name alone) and the plugins that read them. A key at the top
that it does not know is refused; below, it is ignored. The training script says the batch, the sequence length and the
model, and none of it is in the file; nor is what a ``deepspeed_config_file`` holds, which is not opened.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from meshwright.errors import InputError, Problem, Severity
from meshwright.frameworks.accelerate.importing.option_conflicts import SECTIONS, config_rules
from meshwright.frameworks.accelerate.importing.options_to_plan import config_facts
from meshwright.frameworks.accelerate.importing.unread_options import unread_keys
from meshwright.frameworks.accelerate.options import FSDP_SECTION, MEGATRON, PREFIX, TABLE
from meshwright.frameworks.importing.config_values import ConfigValues
from meshwright.frameworks.importing.imported_file import ALONE, ImportedFile, OutsideFacts, completed
from meshwright.frameworks.importing.unknown_keys import unknown_problems
from meshwright.frameworks.nested_keys import Path
from meshwright.plans.files.yaml_text import read_value

LOOSE = {FSDP_SECTION: "fsdp_", "fp8_config": "fp8_", "dynamo_config": "dynamo_"}
"""Sections whose keys may leave out their prefix."""


def import_accelerate(text: str, outside: OutsideFacts = ALONE) -> ImportedFile:
    """Read an Accelerate configuration. Raises InputError if it cannot be parsed."""
    data = read_value(text, "file")
    names = frozenset(name for name in TABLE.names if not name.startswith("--"))
    if not isinstance(data, dict) or not data.keys() & {name for name in names if "." not in name}:
        rule = "has none of Accelerate's keys"
        raise InputError(Problem("file", str(data)[:80], rule, "distributed_type: FSDP"))
    problems = [*_shapes(data), *unknown_problems(data, names, lambda path: _verdict(path, names))]
    settings = _arguments(data, problems)
    facts = completed(config_facts(settings), outside)
    config_rules(settings, facts)
    return ImportedFile(
        source="accelerate",
        release=TABLE.full_name,
        facts=facts,
        unread=unread_keys(settings, facts),
        problems=tuple(problems),
    )


def _arguments(data: Mapping[str, Any], problems: list[Problem]) -> ConfigValues:
    """All keys as options of the launcher: those of sections by their own name."""
    values: dict[str, Any] = {}
    labels: dict[str, str] = {}
    for key, value in data.items():
        if not isinstance(value, Mapping):
            values[key] = value
            continue
        values[key] = dict(value)
        prefix = LOOSE.get(key, "")
        for inner, item in value.items():
            name = inner if inner.startswith(prefix) else prefix + inner
            values[name], labels[name] = item, f"{key}.{inner}"
    return ConfigValues(values, labels, problems)


def _shapes(data: Mapping[str, Any]) -> Iterator[Problem]:
    for name in SECTIONS:
        if data.get(name) is not None and not isinstance(data[name], Mapping):
            yield Problem(
                name,
                str(data[name])[:80],
                "must be a mapping",
                f"leave {name} out, or indent its keys below it",
            )


def _verdict(path: Path, names: frozenset[str]) -> tuple[str, str, Severity]:
    if len(path) == 1:
        return f"is no key of Accelerate {TABLE.release}, which refuses it", "", "error"
    rule = f"is no key of Accelerate {TABLE.release}, which ignores it"
    for prefix in (PREFIX, MEGATRON):
        if f"{path[0]}.{prefix}{path[-1]}" in names:
            return rule, prefix + path[-1], "warning"
    return rule, "", "warning"
