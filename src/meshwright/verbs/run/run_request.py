"""The request for a training run, and its check: every problem at once, before anything starts.

A plan is run by Meshwright's own stack, whatever stack it was made for: its layout, schedule, sharding, recomputation
and the way of tokens to their experts are kept, and what that stack does not do is refused by name.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

from meshwright.errors import InputError, Problem, attempted, nearest
from meshwright.model.named_tensors import adapted_matrices, adapter_shapes, named_parameters
from meshwright.plans.resolve import Resolved, resolve_with
from meshwright.runtime.faults.injection import injections
from meshwright.runtime.training.optimizer_values import with_plan_values
from meshwright.runtime.training.options import TrainingOptions
from meshwright.stack.load import own_stack
from meshwright.stack.stack import OWN_STACK
from meshwright.verbs.predict.predict_plan import doubts, expected_time
from meshwright.verbs.run.anchor_step import anchor_remark
from meshwright.verbs.run.frozen_base import base_folder
from meshwright.verbs.run.memory_check import HostDevices, check_memory
from meshwright.workload.adapter import HD_PISSA

SHRINK = "shrink"
"""The policy of faults under which replicas come and go."""

if TYPE_CHECKING:
    from meshwright.runtime.launch.launcher_environment import Place


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """Options of a training run. ``options`` are fields of ``TrainingOptions``; others have their default.

    ``precision`` in place of the plan's; ``initial``: a folder of Hugging Face weights to begin with; ``export``: one
    to write at the end; ``resume``: ``auto``, ``never`` or a checkpoint; ``join``: HOST:PORT of a run to join; ``cpu``:
    leave accelerators alone; ``force``: start although memory is predicted not to suffice.
    """

    options: Mapping[str, Any]
    precision: str | None = None
    initial: str | None = None
    export: str | None = None
    resume: str = "auto"
    join: str | None = None
    cpu: bool = False
    force: bool = False

    @property
    def output(self) -> Path:
        """The folder that is written to, whatever else is wrong with the options."""
        return Path(self.options.get("output", TrainingOptions.__dataclass_fields__["output"].default))


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedRun:
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


def check_run_request(resolved: Resolved, request: RunRequest, place: "Place | None") -> CheckedRun:
    """Check the request. Raise InputError with every problem, and InfeasibleError without room."""
    from meshwright.runtime.training.launch_training import accelerators_here, check_host

    problems: list[Problem] = []
    ours = attempted(lambda: _under_our_stack(resolved), problems)
    options = attempted(lambda: _options(request.options), problems)
    precision = attempted(lambda: _precision(request, resolved), problems)
    if request.join is None:  # else ranks of the plan run elsewhere
        attempted(lambda: check_host(resolved.setting.cluster.devices, place, cpu=request.cpu), problems)
    attempted(lambda: _check_data(request), problems)
    if place is None or place.rank == 0:
        problems += _folder_problems(request)
    attempted(lambda: _check_injections(options, resolved), problems)
    problems += _recovery_problems(options, request, place)
    resume = attempted(lambda: _checkpoint(request), problems)
    if resume is None:  # a run that goes on has its weights
        attempted(lambda: _check_weights(request, resolved), problems)
    if ours is not None and options is not None:
        given, optimizer = options, ours.setting.workload.optimizer
        options = attempted(lambda: with_plan_values(given, optimizer), problems)
    if problems:
        raise InputError({str(problem): problem for problem in problems}.values())
    assert ours is not None
    assert options is not None
    assert precision is not None
    remarks = list(dict.fromkeys(doubts(resolved, ours)))
    if resolved.setting.stack.name != OWN_STACK:
        remarks.append(f"The plan is for {resolved.setting.stack.id}; {ours.setting.stack.id} runs it here.")
    remarks += anchor_remark(ours.long, options.rates)
    ranks_here = resolved.setting.cluster.devices if place is None else 1
    room = HostDevices(accelerated=accelerators_here(cpu=request.cpu) > 0, ranks_here=ranks_here)
    remarks += expected_time(ours)
    remarks += check_memory(ours, precision, room, force=request.force)
    return CheckedRun(
        resolved=ours, options=options, precision=precision, resume=resume, remarks=tuple(remarks)
    )


def _under_our_stack(resolved: Resolved) -> Resolved:
    """Return the plan as our stack runs it. Raise InputError where it cannot."""
    setting, long = resolved.setting, resolved.long
    if setting.stack.name == OWN_STACK:
        return resolve_with(long, setting.model, setting.cluster, setting.stack, stack_binds=True)
    long = long.model_copy(update={"stack": OWN_STACK})
    return resolve_with(long, setting.model, setting.cluster, own_stack(setting.stack), stack_binds=True)


def _recovery_problems(
    options: TrainingOptions | None, request: RunRequest, place: "Place | None"
) -> Iterator[Problem]:
    """Yield the problems of a policy that this way of starting ranks does not allow."""
    if options is None or request.join is not None:
        return
    if options.on_fault == SHRINK and place is not None:
        rule = f"{place.launcher} ends all ranks when one has ended"
        yield Problem("on_fault", SHRINK, rule, "--on-fault restart, or start the run without a launcher")
    if options.listen is not None and (options.on_fault not in (SHRINK, "replan") or place is not None):
        rule = "others join runs with --on-fault shrink or replan"
        yield Problem("listen", options.listen, rule, "leave it out")


def _check_injections(options: TrainingOptions | None, resolved: Resolved) -> None:
    """Raise InputError for injected faults of ranks that the plan does not have."""
    if options is not None:
        injections(options.inject, resolved.setting.cluster.devices)


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


def _precision(request: RunRequest, resolved: Resolved) -> str:
    from meshwright.runtime.precision import PRECISIONS

    chosen = request.precision or resolved.setting.workload.precision
    if request.precision and chosen not in PRECISIONS:
        raise InputError(
            Problem("precision", chosen, "is none that is computed in", nearest(chosen, PRECISIONS))
        )
    return chosen


def _check_data(request: RunRequest) -> None:
    """Raise InputError for missing data files; their content is checked when they are opened."""
    from meshwright.runtime.data.input_files import find_files

    if request.options.get("data"):
        find_files(request.options["data"])


def _check_weights(request: RunRequest, resolved: Resolved) -> None:
    """Weights to begin with are this model's."""
    from meshwright.runtime.weights.load import load
    from meshwright.runtime.weights.peft_files import check_names, is_adapter_folder, load_adapters

    model, adapters = resolved.setting.model, adapter_shapes(resolved.setting.model)
    if any(op.of_each_replica for _, op, _ in adapted_matrices(model)):
        _refuse_adapter_files(request)
    elif adapters and request.export is not None:
        check_names(model)
    if request.initial is None:
        return
    if is_adapter_folder(request.initial):
        if not adapters:
            rule = "holds adapters, and the plan trains all parameters"
            raise InputError(Problem("init", request.initial, rule, "task: lora, or a folder of weights"))
        load_adapters(request.initial, model)
    nothing = (slice(0, 0),)
    names = named_parameters(model).keys() - adapters.keys()
    load(base_folder(request.initial) or "", model, dict.fromkeys(sorted(names), nothing))


def _refuse_adapter_files(request: RunRequest) -> None:
    """Raise InputError where adapters that change the base should be read or written as those of one model."""
    from meshwright.runtime.weights.peft_files import is_adapter_folder

    problems = []
    if request.export is not None:
        rule = f"{HD_PISSA} changes the base, which files of adapters do not hold"
        problems.append(Problem("export", request.export, rule, "meshwright convert CHECKPOINT --merge"))
    if request.initial is not None and is_adapter_folder(request.initial):
        rule = f"holds adapters, and {HD_PISSA} begins with those of the base itself"
        problems.append(Problem("init", request.initial, rule, "a folder of weights"))
    if problems:
        raise InputError(problems)


def _folder_problems(request: RunRequest) -> list[Problem]:
    """Return the problems of the folders that the run will write."""
    from meshwright.runtime.training.job_and_outcome import CHECKPOINTS
    from meshwright.verbs.run.run_request import check_folder

    problems: list[Problem] = []
    attempted(lambda: check_folder(request.output / CHECKPOINTS, "output"), problems)
    if request.export is not None:
        folder = Path(request.export)
        attempted(lambda: check_folder(folder, "export"), problems)
        there = sorted(folder.glob("*.safetensors*"))
        if there:
            rule = f"holds a checkpoint already: {there[0].name}"
            problems.append(Problem("export", request.export, rule, "another folder, or remove it"))
    return problems


def _checkpoint(request: RunRequest) -> Path | None:
    from meshwright.runtime.training.job_and_outcome import CHECKPOINTS
    from meshwright.runtime.training.resume import checkpoint_to_resume

    return checkpoint_to_resume(request.output / CHECKPOINTS, request.resume)


def check_folder(folder: Path, field: str) -> None:
    """Create and remove a file in a folder, and any folders that this needs. Raises InputError.

    Only the attempt is reliable: displayed permissions do not hold for every user and file system.
    """
    made: list[Path] = []
    try:
        for path in reversed(_missing(folder)):
            path.mkdir()
            made.append(path)
        with TemporaryFile(dir=folder):
            pass
    except (OSError, ValueError) as error:
        rule = f"cannot be written: {getattr(error, 'strerror', None) or error}"
        raise InputError(Problem(field, str(folder), rule, "a folder of this user")) from None
    finally:
        for path in reversed(made):
            with suppress(OSError):
                path.rmdir()


def _missing(folder: Path) -> Sequence[Path]:
    """Return the folder and its parents that do not exist, innermost first."""
    return [path for path in (folder, *folder.parents) if not path.exists()]
