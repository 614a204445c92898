"""Describe the frozen base of a run that trains adapters: checkpoints hold the adapters, and say where the base is."""

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from meshwright.errors import InputError, Problem
from meshwright.model.load import load_model
from meshwright.model.local_path import model_path
from meshwright.model.transforms.lora_adapters import with_adapters
from meshwright.plans.forms.short import AdapterSpec
from meshwright.plans.resolve import Resolved
from meshwright.stack.load import load_stack
from meshwright.stack.stack import OWN_STACK

HEADER_BYTES = 8
"""A safetensors file begins with the length of its header."""


def new_base(resolved: Resolved, initial: str | None, seed: int) -> dict[str, Any] | None:
    """Return the base of a run that begins, JSON-ready; None if all parameters are trained. Raises InputError.

    ``init``: the folder of its weights (that of an adapter names it); None: random ones of ``seed``.
    """
    spec = resolved.long.workload.adapter
    if spec is None:
        return None
    init, path = base_folder(initial), model_path(resolved.long.model)
    return {
        "model": str(path or resolved.long.model),
        "adapter": spec.model_dump(mode="json"),
        "init": None if init is None else str(init),
        "seed": seed,
        "files": None if init is None else files_digest(init),
    }


def base_of_checkpoint(facts: Mapping[str, object]) -> dict[str, Any] | None:
    """Return the base that a checkpoint names. Raises InputError if its files are missing or others now."""
    base = facts.get("base")
    if not isinstance(base, dict):
        return None
    if base["init"] is not None and files_digest(Path(base["init"])) != base["files"]:
        rule = "holds other weights than those that the adapters were trained on"
        raise InputError(Problem("init", base["init"], rule, "the weights of then, in that folder"))
    return base


def base_folder(initial: str | None) -> Path | None:
    """Return the folder of the base's weights. Raises InputError if an adapter names none that is here."""
    if initial is None:
        return None
    from meshwright.runtime.weights.peft_files import BASE, is_adapter_folder, read_adapter_config

    if not is_adapter_folder(initial):
        return Path(initial).resolve()
    named = read_adapter_config(initial).get(BASE)
    folder = Path(str(named))
    if not named or not folder.is_dir():
        rule = f"is the adapter of {named}, which is no folder here"
        raise InputError(Problem("init", initial, rule, f"a local {BASE} in its adapter_config.json"))
    return folder.resolve()


def files_digest(folder: Path) -> str:
    """Return a digest of the names, sizes and headers of a folder's weights. Raises InputError."""
    digest = sha256()
    try:
        for path in sorted(folder.glob("*.safetensors")):
            with path.open("rb") as file:
                length = file.read(HEADER_BYTES)
                header = file.read(min(int.from_bytes(length, "little"), path.stat().st_size))
            digest.update(f"{path.name} {path.stat().st_size} ".encode() + header)
    except OSError as error:
        rule = f"cannot be read: {error.strerror or error}"
        raise InputError(Problem("init", str(folder), rule, "the folder of the base's weights")) from None
    return digest.hexdigest()


def model_of_base(base: Mapping[str, Any]) -> "Any":
    """Return the graph of a base with its adapters. Raises InputError."""
    adapter = AdapterSpec.model_validate(base["adapter"]).adapter
    return with_adapters(load_model(base["model"]), adapter, halves=load_stack(OWN_STACK).frozen_apart)
