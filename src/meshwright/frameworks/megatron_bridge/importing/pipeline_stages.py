"""Stages of a Megatron-Bridge configuration: a layout as text or as lists of names, or numbers for the ends.

The fields mean what Megatron's options mean, and its rules read them (``megatron_facts``). Source: megatron-core
0.19.2, ``core/transformer/pipeline_parallel_layer_layout.py``, ``core/transformer/transformer_config.py``.
"""

from collections.abc import Mapping

from meshwright.frameworks.importing.command_line import CommandLine, GivenOption
from meshwright.frameworks.importing.config_values import ConfigValues
from meshwright.frameworks.importing.imported_file import Fact, OutsideFacts
from meshwright.frameworks.megatron import options as megatron
from meshwright.frameworks.megatron.importing.options_to_plan import ACCOUNT, option_facts
from meshwright.frameworks.megatron_bridge import options as names

STAGE_OPTIONS: Mapping[str, str] = {
    names.LAYERS: megatron.LAYERS,
    names.PP: megatron.PP,
    names.CHUNKS: megatron.CHUNKS,
    **dict(zip(names.ENDS, megatron.ENDS, strict=True)),
    **dict(zip(names.ACCOUNT, ACCOUNT, strict=True)),
    names.LAYOUT: megatron.LAYOUT,
}
"""Fields that make stages, as Megatron's options: the same rules read them."""
LETTERS = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}
SIZES = (names.LAYERS, names.PP, names.CHUNKS)
"""Fields that say something besides."""


def stage_facts(settings: ConfigValues, facts: Mapping[str, Fact]) -> dict[str, Fact]:
    """Stages that are written out, or whose ends have their own numbers."""
    values = {key: _stage_values(settings, key) for key in STAGE_OPTIONS}
    options = {
        option: GivenOption(settings.label(key), found, 0)
        for key, option in STAGE_OPTIONS.items()
        if (found := values[key]) is not None
    }
    known = {path: facts[path] for path in ("model.layers", "layout.pp") if path in facts}
    stages = option_facts(CommandLine(options, settings.problems), OutsideFacts(changes=known)).get("stages")
    if stages is None:
        return {}
    words = [settings.words(key) for key, found in values.items() if found is not None and key not in SIZES]
    return {"stages": Fact(stages.value, ", ".join(words))}


def _stage_values(settings: ConfigValues, key: str) -> tuple[str, ...] | None:
    """Return the words of Megatron's option; None where it is absent."""
    if key == names.LAYOUT:
        text = layout_text(settings)
        return None if text is None else (text,)
    if key in names.ACCOUNT:
        return () if settings.truth(key) else None
    number = settings.number(key)
    return None if number is None else (str(number),)


def layout_text(settings: ConfigValues) -> str | None:
    """Return the layout as Megatron's text, also where it is a list of lists of names."""
    value = settings.get(names.LAYOUT)
    if not isinstance(value, tuple):
        return value if value is None else str(value)
    rows = [row if isinstance(row, tuple) else (row,) for row in value]
    layers = {str(name).strip().lower() for row in rows for name in row}
    if layers - set(LETTERS):
        settings.problem(
            names.LAYOUT,
            f"{', '.join(sorted(layers - set(LETTERS)))[:80]}: no such layers",
            ", ".join(LETTERS),
        )
        return None
    return "|".join("".join(LETTERS[str(name).strip().lower()] for name in row) for row in rows)
