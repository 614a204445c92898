"""Translate a plan's optimizer options to Megatron's, and back.

Source: ``optimizer_config.py`` and arguments of Megatron-core 0.19. ``match-rms-adamw`` is ``spectral`` times 0.2.
Every option of Muon is written; SGD's momentum too, for Megatron's own is 0.9; the others where a plan writes them.
"""

from collections.abc import Mapping
from typing import Any

from meshwright.frameworks.importing.imported_file import Fact
from meshwright.frameworks.option_table import Facts, OptionValues
from meshwright.workload.optimizers.optimizer_kind import Value

OPTIMIZERS = {"adamw": "adam", "sgd": "sgd", "lion": "lion", "muon": "muon"}
SCALES = {"shape": "shape_scaling", "spectral": "spectral", "unit-rms": "unit_rms_norm"}
OTHERS = {"adamw": "adam", "lion": "lion"}
MATCHED, MATCHING = "match-rms-adamw", 0.2
EXTRA_SCALE, SCALE, OTHER = "muon_extra_scale_factor", "muon_scale_mode", "muon_scalar_optimizer"
PLAIN: Mapping[str, Mapping[str, str]] = {
    "adamw": {"adam_eps": "epsilon"},
    "lion": {},
    "sgd": {"sgd_momentum": "momentum"},
    "muon": {
        "muon_momentum": "momentum",
        "muon_nesterov": "nesterov",
        "muon_num_ns_steps": "steps",
        "muon_tp_mode": "tensor",
    },
}
"""For each optimizer the options that have a plan's values."""
BETAS = {"adamw": ("adam_beta1", "adam_beta2"), "lion": ("lion_beta1", "lion_beta2")}
ALWAYS = ("sgd", "muon")
WEIGHT_DECAY = "weight_decay"
NAMES = (
    *(name for names in PLAIN.values() for name in names),
    *(name for names in BETAS.values() for name in names),
    *(SCALE, EXTRA_SCALE, OTHER, WEIGHT_DECAY),
)
MOMENTUM = 0.9
"""That of SGD and Muon where a command line says none."""


def optimizer_value(name: str, facts: Facts) -> Any:
    """Return the value of one of Megatron's options for a plan; None leaves it out."""
    return _values(facts).get(name)


def _values(facts: Facts) -> dict[str, Any]:
    optimizer, written = facts["workload.optimizer"], facts["optimizer.written"]
    found = {
        name: facts[f"optimizer.{key}"]
        for name, key in PLAIN[optimizer].items()
        if optimizer in ALWAYS or key in written
    }
    if "betas" in written and optimizer in BETAS:
        found |= zip(BETAS[optimizer], facts["optimizer.betas"], strict=True)
    if WEIGHT_DECAY in written:
        found[WEIGHT_DECAY] = facts[f"optimizer.{WEIGHT_DECAY}"]
    if optimizer == "muon":
        scale = facts["optimizer.scale"]
        found[SCALE] = SCALES.get(scale, SCALES["spectral"])
        found[EXTRA_SCALE] = MATCHING if scale == MATCHED else 1.0
        found[OTHER] = OTHERS[facts["optimizer.others"]]
    return found


def optimizer_facts(values: OptionValues, optimizer: str, prefix: str, momentum: float) -> dict[str, Fact]:
    """Return the options of SGD and Muon that change states or times, Megatron's own where a file leaves them out.

    ``prefix`` begins the options' names, with hyphens on a command line. ``momentum`` is Megatron's where nothing is
    said.
    """
    if optimizer not in ALWAYS:
        return {}

    def said(name: str, usual: Value) -> Fact:
        option = prefix + (name.replace("_", "-") if prefix == "--" else name)
        if option not in values:
            return Fact(usual, values.left_out(option, usual))
        if isinstance(usual, bool):
            return values.fact(option, values.truth(option))
        given = str(values.get(option))
        return values.fact(option, given if isinstance(usual, str) else _number(given, usual))

    found = {"optimizer.momentum": said(f"{optimizer}_momentum", momentum)}
    if optimizer == "sgd":
        return found
    scale, other = said(SCALE, SCALES["spectral"]), said(OTHER, "adam")
    extra = said(EXTRA_SCALE, 1.0)
    ours = next((name for name, word in SCALES.items() if word == scale.value), "spectral")
    matched = extra.value == MATCHING and ours == "spectral"
    return found | {
        "optimizer.nesterov": said("muon_nesterov", False),
        "optimizer.steps": said("muon_num_ns_steps", 5),
        "optimizer.tensor": said("muon_tp_mode", "blockwise"),
        "optimizer.scale": Fact(MATCHED, extra.words) if matched else Fact(ours, scale.words),
        "optimizer.others": Fact("lion" if other.value == "lion" else "adamw", other.words),
    }


def _number(text: str, usual: Value) -> Value:
    """Return a number as Megatron reads it; text that is none as it is, for the plan to refuse."""
    try:
        return int(text) if isinstance(usual, int) else float(text)
    except ValueError:
        return text
