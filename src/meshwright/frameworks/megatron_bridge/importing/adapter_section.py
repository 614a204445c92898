"""Adapters in the section ``peft`` of a Megatron-Bridge configuration.

``CanonicalLoRA`` has a pair of matrices for each of q, k, v, gate and up, as a plan does; ``LoRA`` one for each fused
matrix, which is read as pairs of their own. Source: Megatron-Bridge, ``peft/lora.py``, ``peft/canonical_lora.py``.
"""

from collections.abc import Iterator

from meshwright.frameworks.importing.config_values import ConfigValues
from meshwright.frameworks.importing.imported_file import Fact, UnmappedOption

DIM, ALPHA, TARGETS, KIND = "peft.dim", "peft.alpha", "peft.target_modules", "peft._target_"
USUAL = 32
"""Rank and alpha of both classes."""
FUSED = {"linear_qkv": "q, k and v", "linear_fc1": "gate and up"}


def adapter_facts(settings: ConfigValues) -> dict[str, Fact]:
    """Return task and adapters where the file has some."""
    if not any(path.startswith("peft.") for path in settings.values):
        return {}
    rank, alpha = settings.number(DIM) or USUAL, settings.get(ALPHA, USUAL)
    adapter: dict[str, object] = (
        {"rank": rank, "alpha": float(alpha)} if _is_number(alpha) else {"rank": rank}
    )
    modules = settings.get(TARGETS)
    if isinstance(modules, list | tuple) and modules:
        adapter["targets"] = [str(name) for name in modules]
    words = f"{DIM} {rank}"
    return {"workload.task": Fact("lora", words), "workload.adapter": Fact(adapter, words)}


def unread_adapter(settings: ConfigValues) -> Iterator[UnmappedOption]:
    """Yield what of adapters a plan has no words for."""
    modules = [str(name) for name in settings.get(TARGETS) or ()]
    for name in modules:
        if name in FUSED:
            yield UnmappedOption(
                TARGETS, name, f"one A for {FUSED[name]}: read as a pair of matrices for each"
            )
    kind = str(settings.get(KIND, ""))
    if kind.rpartition(".")[2] not in ("", "LoRA", "CanonicalLoRA"):
        yield UnmappedOption(KIND, kind, "read as LoRA")
    dropout = settings.get("peft.dropout", 0)
    if dropout:
        yield UnmappedOption("peft.dropout", str(dropout), "dropout of adapters is not described")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
