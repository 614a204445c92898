"""Choose the checkpoint that a run resumes from, and check that it may.

Plan, model and precision are compared when the checkpoint is read; this module compares the data, which must be the
same, since a run with other data is another run. Other options may change, and are reported.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from meshwright.errors import InputError, Problem
from meshwright.runtime.checkpoint import latest_checkpoint
from meshwright.runtime.checkpoint.manifest import MANIFEST, Manifest, facts_of, read_manifest
from meshwright.runtime.checkpoint.run_folder import committed, step_of
from meshwright.runtime.training.job_and_outcome import CHECKPOINTS
from meshwright.runtime.training.options import TrainingOptions

AUTO, NEVER = "auto", "never"
OF_NO_EFFECT = (
    "output",
    "cache",
    "data",
    "checkpoint_every",
    "checkpoint_async",
    "checkpoint_buffer_gib",
    "checkpoint_local",
    "evaluate_every",
    "keep_last",
    "keep_every",
    "inject",
    "hash_every",
    "hang_s",
    "on_fault",
    "max_restarts",
    "listen",
    "tensorboard",
    "prometheus",
)
"""Options that may differ without changing any step; the data's own identity is compared separately."""
OPTION_OF = {name: name for name in ("seed", "mask_document_starts", "end_of_document")} | {
    "held_out_windows": "held_out",
    "seq_len": "workload.seq_len",
    "global_batch": "workload.global_batch",
    "documents": "workload.documents",
    "encoder_tokens": "workload.encoder_tokens",
    "images": "workload.images",
}
"""The option, or the entry of the plan, that an entry of the data's identity comes from."""
ANOTHER = "another folder with --out to begin anew"


def checkpoint_to_resume(folder: Path, resume: str) -> Path | None:
    """Return the checkpoint that ``resume`` (``auto``, ``never`` or a path) means; None for none. Raises InputError.

    A folder never holds checkpoints of two runs: the newest one would be the other run's.
    """
    latest = latest_checkpoint(folder)
    if resume == AUTO:
        return latest
    if resume == NEVER:
        if latest is not None:
            rule = f"{folder} holds checkpoints of a run"
            raise InputError(
                Problem("resume", resume, rule, "name another folder with --out, or --resume auto")
            )
        return None
    chosen = Path(resume)
    named = step_of(chosen) is not None
    if not chosen.is_dir() or not (named or (chosen / MANIFEST).is_file()):
        rule = "is no checkpoint" if chosen.exists() else "no such checkpoint"
        raise InputError(Problem("resume", resume, rule, _near(chosen)))
    if latest is not None and latest.resolve() != chosen.resolve() and _step(latest) > _step(chosen):
        rule = f"{latest} is further on: its checkpoints would be taken for this run's"
        suggestion = f"name another folder with --out, or move {latest.name} away"
        raise InputError(Problem("resume", resume, rule, suggestion))
    return chosen


def _near(path: Path) -> str:
    """Suggest what a path that is not a checkpoint may mean, such as the output folder of a run."""
    for folder in (path, path / CHECKPOINTS, path.parent):
        if folder.is_dir() and (latest := latest_checkpoint(folder)) is not None:
            return f"--resume {latest}"
    return "the folder of a checkpoint, such as run/checkpoints/step-00000120"


def _step(path: Path) -> int:
    """Return the step in a checkpoint's name, which a damaged one has too; if it was renamed, the manifest's."""
    step = step_of(path)
    return read_manifest(path).step if step is None else step


def changed_options(
    manifest: Manifest, options: TrainingOptions, identity: Mapping[str, object]
) -> list[str]:
    """Return the changed options of a resumed run, as text. Raises InputError if its data differ."""
    facts = facts_of(manifest)
    problems = _other_data(facts, options, identity)
    if problems:
        raise InputError(problems)
    before, own = _stored(facts, "options"), options.to_json()
    return [
        f"{name} {own[name]} in place of {before[name]}"
        for name in own
        if name in before and name not in OF_NO_EFFECT and _plain(own[name]) != before[name]
    ]


def checkpoints_dropped_notice(options: TrainingOptions) -> Iterator[str]:
    """Yield a notice if fewer checkpoints are to be kept than exist."""
    there = len(committed(options.output / CHECKPOINTS))
    if there > options.keep_last:
        yield f"--keep {options.keep_last}: of the {there} checkpoints there, older ones go at the next save."


def _other_data(
    facts: Mapping[str, object], own: TrainingOptions, identity: Mapping[str, object]
) -> list[Problem]:
    """Return the problems of differing data: only the files if they differ, since much else follows from them."""
    there, here = _stored(facts, "data"), _plain(dict(identity))
    if not there:  # converted from other software, which does not tell its data
        return []
    if there.get("data") != here.get("data"):
        return [_other_files(_stored(facts, "options").get("data"), own)]
    return [
        Problem(
            OPTION_OF.get(name, f"data.{name}"),
            here.get(name),
            f"the checkpoint's run had {there.get(name)!r}",
            f"the same as before, or {ANOTHER}",
        )
        for name in dict.fromkeys([*there, *here])
        if there.get(name) != here.get(name)
    ]


def _other_files(before: object, own: TrainingOptions) -> Problem:
    """Return the problem of differing files; ``before`` are the checkpoint's data names."""
    names = [str(name) for name in before] if isinstance(before, list) else []
    text = ", ".join(names) if names else "synthetic data"
    if names == list(own.data):
        rule = f"are not what the checkpoint's run was trained on: {text} or its tokenizer has changed since"
        return Problem("data", names, rule, f"the files and the tokenizer of then, or {ANOTHER}")
    again = " ".join(f"--data {name}" for name in names) if names else "leave --data out"
    return Problem(
        "data", list(own.data), f"the checkpoint's run was trained on {text}", f"{again}, or {ANOTHER}"
    )


def _stored(facts: Mapping[str, object], name: str) -> Mapping[str, object]:
    found = facts.get(name)
    return found if isinstance(found, dict) else {}


def _plain(value: object) -> Mapping[str, object]:
    """Return a value as JSON gives it back."""
    return json.loads(json.dumps(value))
