"""Describe a checkpoint of a run, check its digests, and say which plans can go on from it."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.errors import InputError, Problem
from meshwright.program.lowering.lower_plan import lower
from meshwright.program.program import Program
from meshwright.stack.load import own_stack
from meshwright.stack.stack import OWN_STACK
from meshwright.verbs.load_plan import load

if TYPE_CHECKING:
    from meshwright.runtime.checkpoint.manifest import Manifest

MANIFEST = "manifest.json"


def is_checkpoint(name: str | Path) -> bool:
    """Return whether a path is the folder of a checkpoint."""
    path = Path(name)
    try:
        return path.is_dir() and (path.name.startswith("step-") or (path / MANIFEST).is_file())
    except (OSError, ValueError):
        return False


def describe_checkpoint(
    path: Path, plans: Iterable[str | Path] = (), *, check: bool = False
) -> dict[str, Any]:
    """Return what a checkpoint holds, and for each of ``plans`` whether it can go on from it.

    ``check``: every byte is read and compared with its digest. Raises InputError for a damaged manifest.
    """
    try:
        from meshwright.runtime.checkpoint.chunked_file import file_problems
        from meshwright.runtime.checkpoint.manifest import (
            CHUNK_BYTES,
            foreign_files,
            read_manifest,
            size_problems,
        )
    except ImportError as missing:
        rule = f"needs {missing.name}, which is not installed"
        raise InputError(Problem("checkpoint", str(path), rule, "pip install 'meshwright[run]'")) from missing
    manifest = read_manifest(path)
    sizes = [stored.size_bytes for stored in manifest.files.values()]
    problems = [
        *foreign_files(path, manifest),
        *(file_problems if check else size_problems)(path, manifest.files),
    ]
    chunked = all(stored.chunks for stored in manifest.files.values())
    return {
        "kind": "checkpoint",
        "path": str(path),
        "format": 2 if chunked else 1,
        "step": manifest.step,
        "precision": manifest.precision,
        "ranks": manifest.ranks,
        "signature": manifest.signature,
        "files": len(sizes),
        "size_bytes": sum(sizes),
        "digests": {
            "of": "header and chunks of 16 MiB" if chunked else "files",
            "count": sum(len(stored.chunks) or 1 for stored in manifest.files.values()),
            "checked": check,
        },
        "host_memory_bytes": {
            "one_rank": max(sizes, default=0) + CHUNK_BYTES,
            "all_in_one_process": sum(sizes) + CHUNK_BYTES,
        },
        "plan": dict(manifest.plan),
        "problems": [problem.to_json() for problem in problems],
        "plans": [_under(manifest, plan, CHUNK_BYTES) for plan in plans],
    }


def _under(manifest: "Manifest", plan: str | Path, chunk_bytes: int) -> dict[str, Any]:
    """Return whether a plan can go on from a checkpoint, what it changes and what a rank of it needs."""
    from meshwright.runtime.checkpoint.compatibility import incompatibilities, plan_changes

    resolved = load(plan)
    setting = resolved.setting
    stack = setting.stack if setting.stack.name == OWN_STACK else own_stack(setting.stack)
    program = lower(resolved.long, setting.model, setting.cluster, setting.workload, stack)
    problems = list(incompatibilities(manifest, program, setting.model, manifest.precision))
    return {
        "plan": str(plan),
        "loads": not problems,
        "problems": [problem.to_json() for problem in problems],
        "changes": plan_changes(manifest, program) if not problems else [],
        "host_memory_bytes": None if problems else _held(program, manifest.precision) + chunk_bytes,
    }


def _held(program: Program, precision: str) -> int:
    """Return the bytes of the states of a checkpoint on the rank that has the most."""
    width = 2 if precision == "fp64" else 1
    return width * max(program.held_bytes(rank, "optimizer") for rank in range(program.pipeline_ranks))
