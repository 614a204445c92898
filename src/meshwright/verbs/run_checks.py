"""What a training run is asked to do, and everything that is wrong with it, all at once and before anything starts.

A plan is run by Meshwright's own stack, whatever stack it was made for: its layout, schedule, sharding and
recomputation are kept, and what that stack does not do is refused by name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.errors import InputError, Problem, attempted, nearest
from meshwright.model.running import named_parameters
from meshwright.plan.resolve import Resolved, resolve_with
from meshwright.plan.runnable import OWN_STACK, hindrances
from meshwright.runtime.options import TrainingOptions
from meshwright.stack.load import load_stack

if TYPE_CHECKING:
    from meshwright.runtime.launch.environment import Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a run is asked to do. ``options`` are fields of ``TrainingOptions``; what is left out has its default.

    ``precision`` in place of the plan's; ``initial``: a folder of Hugging Face weights to begin with; ``export``: one
    to write at the end; ``resume``: ``auto``, ``never`` or a checkpoint; ``cpu``: leave accelerators alone.
    """

    options: Mapping[str, Any]
    precision: str | None = None
    initial: str | None = None
    export: str | None = None
    resume: str = "auto"
    cpu: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Granted:
    """A wish that can be fulfilled: the plan under our stack, and the checkpoint to go on from."""

    resolved: Resolved
    options: TrainingOptions
    precision: str
    resume: Path | None
    remarks: tuple[str, ...]

    @property
    def peak_precision(self) -> str:
        """Of which peak of the devices a run reaches a part."""
        workload = self.resolved.setting.workload
        return workload.peak_precision if self.precision == workload.precision else self.precision


def granted(resolved: Resolved, wish: Wish, place: "Place | None") -> Granted:
    """The wish, if nothing is wrong with it. Raises InputError with all that is."""
    from meshwright.runtime.training.start import check_host

    found = hindrances(resolved.long, resolved.setting.model)
    problems = [problem for problem in found if problem.severity == "error"]
    ours = attempted(lambda: _under_our_stack(resolved), problems)
    options = attempted(lambda: _options(wish.options), problems)
    precision = attempted(lambda: _precision(wish, resolved), problems)
    attempted(lambda: check_host(resolved.setting.cluster.devices, place, cpu=wish.cpu), problems)
    attempted(lambda: _check_data(options), problems)
    attempted(lambda: _check_weights(wish, resolved), problems)
    resume = attempted(lambda: _checkpoint(wish, options), problems)
    if problems:
        raise InputError({str(problem): problem for problem in problems}.values())
    assert ours is not None
    assert options is not None
    assert precision is not None
    remarks = [str(problem) for problem in found if problem.severity == "warning"]
    if ours is not resolved:
        remarks.append(f"The plan is for {resolved.setting.stack.id}; {ours.setting.stack.id} runs it here.")
    return Granted(resolved=ours, options=options, precision=precision, resume=resume, remarks=tuple(remarks))


def _under_our_stack(resolved: Resolved) -> Resolved:
    """The plan as our stack runs it. Raises InputError where it cannot."""
    setting = resolved.setting
    if setting.stack.name == OWN_STACK:
        return resolved
    long = resolved.long.model_copy(update={"stack": OWN_STACK})
    return resolve_with(long, setting.model, setting.cluster, load_stack(OWN_STACK))


def _options(named: Mapping[str, Any]) -> TrainingOptions:
    known = [field.name for field in fields(TrainingOptions)]
    problems = [
        Problem(name, named[name], "there is no such option", nearest(name, known))
        for name in named
        if name not in known
    ]
    if "steps" not in named:
        problems.append(Problem("steps", None, "how many steps to train must be said", "--steps 100"))
    found = attempted(lambda: TrainingOptions(**{"steps": 1} | _known(named, known)), problems)
    if problems:
        raise InputError(problems)
    assert found is not None
    return found


def _known(named: Mapping[str, Any], known: list[str]) -> dict[str, Any]:
    return {name: value for name, value in named.items() if name in known}


def _precision(wish: Wish, resolved: Resolved) -> str:
    from meshwright.runtime.precision import PRECISIONS

    chosen = wish.precision or resolved.setting.workload.precision
    if wish.precision and chosen not in PRECISIONS:
        raise InputError(
            Problem("precision", chosen, "is none that is computed in", nearest(chosen, PRECISIONS))
        )
    return chosen


def _check_data(options: TrainingOptions | None) -> None:
    """Files that are not there are told with everything else; what is in them is seen when they are opened."""
    from meshwright.runtime.data.files import find_files

    if options is not None and options.data:
        find_files(options.data)


def _check_weights(wish: Wish, resolved: Resolved) -> None:
    """Weights to begin with are this model's; nothing is in the way of those at the end."""
    from meshwright.runtime.weights.loading import load

    problems: list[Problem] = []
    if wish.initial is not None:
        folder, model = wish.initial, resolved.setting.model
        nothing = (slice(0, 0),)
        attempted(lambda: load(folder, model, dict.fromkeys(named_parameters(model), nothing)), problems)
    if wish.export is not None:
        there = sorted(Path(wish.export).glob("*.safetensors*"))
        if there:
            rule = f"holds a checkpoint already: {there[0].name}"
            problems.append(Problem("export", wish.export, rule, "another folder, or remove it"))
    if problems:
        raise InputError(problems)


def _checkpoint(wish: Wish, options: TrainingOptions | None) -> Path | None:
    from meshwright.runtime.training.outcome import CHECKPOINTS
    from meshwright.runtime.training.resume import checkpoint_to_resume

    return None if options is None else checkpoint_to_resume(options.output / CHECKPOINTS, wish.resume)
