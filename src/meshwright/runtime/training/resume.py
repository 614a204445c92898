"""Which checkpoint a run goes on from, and whether it may.

That plan, model and precision are the checkpoint's is looked at when it is read; here it is the data that must be the
same, since a run that goes on with other data is another run. Other options may change, and are told.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from meshwright.errors import InputError, Problem
from meshwright.runtime.checkpoint import latest_checkpoint, read_facts
from meshwright.runtime.options import TrainingOptions

AUTO, NEVER = "auto", "never"
OF_NO_EFFECT = ("output", "cache", "data", "checkpoint_every", "evaluate_every", "keep_last")
"""Options that may differ without changing any step; what data are is told by their own identity."""


def checkpoint_to_resume(folder: Path, resume: str) -> Path | None:
    """The checkpoint that ``resume`` (``auto``, ``never`` or a path) means. Raises InputError.

    A folder never holds checkpoints of two runs: the newest one would be the other run's.
    """
    latest = latest_checkpoint(folder)
    if resume == AUTO:
        return latest
    if resume == NEVER:
        if latest is not None:
            rule = f"{folder} holds checkpoints of a run"
            raise InputError(
                Problem("resume", resume, rule, "name another folder with --output, or --resume auto")
            )
        return None
    chosen = Path(resume)
    if latest is not None and latest.resolve() != chosen.resolve():
        ahead, here = read_facts(latest)["step"], read_facts(chosen)["step"]
        if isinstance(ahead, int) and isinstance(here, int) and ahead > here:
            rule = f"{latest} is further on: its checkpoints would be taken for this run's"
            raise InputError(Problem("resume", resume, rule, "name another folder with --output"))
    return chosen


def changed_options(checkpoint: Path, options: TrainingOptions, identity: Mapping[str, object]) -> list[str]:
    """What is to be told of a run that goes on. Raises InputError where its data are other ones."""
    facts = read_facts(checkpoint)
    problems = list(_other_data(facts.get("data"), identity))
    if problems:
        raise InputError(problems)
    stored, own = facts.get("options"), options.to_json()
    before = stored if isinstance(stored, dict) else {}
    return [
        f"{name} {own[name]} in place of {before[name]}"
        for name in own
        if name in before and name not in OF_NO_EFFECT and _plain(own[name]) != before[name]
    ]


def _other_data(stored: object, identity: Mapping[str, object]) -> Iterator[Problem]:
    there, here = stored if isinstance(stored, dict) else {}, _plain(dict(identity))
    for name in dict.fromkeys([*there, *here]):
        if there.get(name) != here.get(name):
            rule = f"in the checkpoint; this run has {here.get(name)!r}"
            yield Problem(
                f"data.{name}", there.get(name), rule, "go on with the same data, or --resume never"
            )


def _plain(value: object) -> Mapping[str, object]:
    """As JSON gives it back."""
    return json.loads(json.dumps(value))
