"""Recognise the format of a checkpoint's folder by its files."""

import json
from pathlib import Path
from typing import Literal

from meshwright.errors import InputError, Problem
from meshwright.runtime.checkpoint.formats.dcp_folder import METADATA, damage
from meshwright.runtime.checkpoint.manifest import MANIFEST
from meshwright.runtime.checkpoint.run_folder import in_short, read_errors

Format = Literal["meshwright", "dcp", "megatron"]
FORMATS: dict[Format, str] = {
    "meshwright": f"{MANIFEST} and rank-*.safetensors",
    "dcp": f"{METADATA} and *.distcp",
    "megatron": f"metadata.json that says torch_dist, {METADATA} and *.distcp (the folder iter_*)",
}
"""The files of each format."""
CONFIG, BACKEND = "metadata.json", "torch_dist"
MOST_CONFIG_BYTES = 2**20
NEWEST, MOST_DIGITS = "latest_checkpointed_iteration.txt", 18
"""Megatron's file beside its checkpoints, which has the step of the newest one."""


def checkpoint_folder(path: Path) -> Path:
    """Return the folder of the newest checkpoint, if this is a folder of Megatron's checkpoints; else the path."""
    if not (path / NEWEST).is_file():
        return path
    with read_errors(path / NEWEST), (path / NEWEST).open("rb") as file:
        step = file.read(MOST_DIGITS + 1).strip()
    if not step.isdigit():
        raise InputError(damage(path / NEWEST, f"names no step: {step.decode(errors='replace')!r}"))
    return path / iteration_name(int(step))


def iteration_name(step: int) -> str:
    """Return Megatron's name of the folder of a checkpoint."""
    return f"iter_{step:07d}"


def source_format(path: Path) -> Format:
    """Return the format of a checkpoint. Raises InputError for other folders."""
    if (path / MANIFEST).is_file():
        return "meshwright"
    if (path / CONFIG).is_file():
        return _megatron(path / CONFIG)
    if (path / METADATA).is_file():
        return "dcp"
    rule = "is no checkpoint that we know: one has " + "; ".join(
        f"{of} ({name})" for name, of in FORMATS.items()
    )
    raise InputError(Problem("source", in_short(path), rule, "the folder that holds these files"))


def _megatron(config: Path) -> Format:
    with read_errors(config), config.open("rb") as file:
        content = file.read(MOST_CONFIG_BYTES)
    try:
        backend = json.loads(content)["sharded_backend"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            damage(config, f"names no backend: {type(error).__name__} {str(error)[:80]}")
        ) from None
    if backend != BACKEND:
        rule = f"says {str(backend)[:40]!r}; of Megatron's formats {BACKEND} is read"
        raise InputError(
            Problem("source", in_short(config), rule, f"--ckpt-format {BACKEND} where it is saved")
        )
    return "megatron"
