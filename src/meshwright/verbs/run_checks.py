"""What a training run is asked to do, and everything that is wrong with it, all at once and before anything starts.

A plan is run by Meshwright's own stack, whatever stack it was made for: its layout, schedule, sharding, recomputation
and the way of tokens to their experts are kept, and what that stack does not do is refused by name.
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
from meshwright.stack.load import own_stack
from meshwright.verbs.predicting import doubts, expected_time
from meshwright.verbs.run_memory import Room, check_memory

if TYPE_CHECKING:
    from meshwright.runtime.launch.environment import Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a run is asked to do. ``options`` are fields of ``TrainingOptions``; what is left out has its default.

    ``precision`` in place of the plan's; ``initial``: a folder of Hugging Face weights to begin with; ``export``: one
    to write at the end; ``resume``: ``auto``, ``never`` or a checkpoint; ``cpu``: leave accelerators alone; ``force``:
    start although memory is predicted not to suffice.
    """

    options: Mapping[str, Any]
    precision: str | None = None
    initial: str | None = None
    export: str | None = None
    resume: str = "auto"
    cpu: bool = False
    force: bool = False

    @property
    def output(self) -> Path:
        """The folder that is written to, whatever else is wrong with the options."""
        return Path(self.options.get("output", TrainingOptions.__dataclass_fields__["output"].default))


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
    """The wish, if nothing is wrong with it. Raises InputError with all that is, and InfeasibleError without room."""
    from meshwright.runtime.training.start import accelerators_here, check_host

    found = hindrances(resolved.long, resolved.setting.model)
    problems = [problem for problem in found if problem.severity == "error"]
    ours = attempted(lambda: _under_our_stack(resolved), problems)
    options = attempted(lambda: _options(wish.options), problems)
    precision = attempted(lambda: _precision(wish, resolved), problems)
    attempted(lambda: check_host(resolved.setting.cluster.devices, place, cpu=wish.cpu), problems)
    attempted(lambda: _check_data(wish), problems)
    if place is None or place.rank == 0:
        problems += _folder_problems(wish)
    resume = attempted(lambda: _checkpoint(wish), problems)
    if resume is None:  # a run that goes on has its weights
        attempted(lambda: _check_weights(wish, resolved), problems)
    if problems:
        raise InputError({str(problem): problem for problem in problems}.values())
    assert ours is not None
    assert options is not None
    assert precision is not None
    warned = [str(problem) for problem in found if problem.severity == "warning"]
    remarks = list(dict.fromkeys([*warned, *doubts(resolved, ours)]))
    if ours is not resolved:
        remarks.append(f"The plan is for {resolved.setting.stack.id}; {ours.setting.stack.id} runs it here.")
    ranks_here = resolved.setting.cluster.devices if place is None else 1
    room = Room(accelerated=accelerators_here(cpu=wish.cpu) > 0, ranks_here=ranks_here)
    remarks += expected_time(ours)
    remarks += check_memory(ours, precision, room, force=wish.force)
    return Granted(resolved=ours, options=options, precision=precision, resume=resume, remarks=tuple(remarks))


def _under_our_stack(resolved: Resolved) -> Resolved:
    """The plan as our stack runs it. Raises InputError where it cannot."""
    setting = resolved.setting
    if setting.stack.name == OWN_STACK:
        return resolved
    long = resolved.long.model_copy(update={"stack": OWN_STACK})
    return resolve_with(long, setting.model, setting.cluster, own_stack(setting.stack))


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


def _check_data(wish: Wish) -> None:
    """Files that are not there are told with everything else; what is in them is seen when they are opened."""
    from meshwright.runtime.data.files import find_files

    if wish.options.get("data"):
        find_files(wish.options["data"])


def _check_weights(wish: Wish, resolved: Resolved) -> None:
    """Weights to begin with are this model's."""
    from meshwright.runtime.weights.loading import load

    if wish.initial is not None:
        nothing = (slice(0, 0),)
        model = resolved.setting.model
        load(wish.initial, model, dict.fromkeys(named_parameters(model), nothing))


def _folder_problems(wish: Wish) -> list[Problem]:
    """What is in the way of what the run will write."""
    from meshwright.runtime.training.folders import check_folder
    from meshwright.runtime.training.outcome import CHECKPOINTS

    problems: list[Problem] = []
    attempted(lambda: check_folder(wish.output / CHECKPOINTS, "output"), problems)
    if wish.export is not None:
        folder = Path(wish.export)
        attempted(lambda: check_folder(folder, "export"), problems)
        there = sorted(folder.glob("*.safetensors*"))
        if there:
            rule = f"holds a checkpoint already: {there[0].name}"
            problems.append(Problem("export", wish.export, rule, "another folder, or remove it"))
    return problems


def _checkpoint(wish: Wish) -> Path | None:
    from meshwright.runtime.training.outcome import CHECKPOINTS
    from meshwright.runtime.training.resume import checkpoint_to_resume

    return checkpoint_to_resume(wish.output / CHECKPOINTS, wish.resume)
