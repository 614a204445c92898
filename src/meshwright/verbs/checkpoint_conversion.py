"""Convert a checkpoint between our format, PyTorch's DCP and Megatron's torch_dist."""

import os
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.errors import InputError, Problem, UnsupportedError, nearest
from meshwright.frameworks.megatron.exporting.model_options import family_refusals
from meshwright.model.graph import ModelGraph
from meshwright.model.load import load_model
from meshwright.plans.rules.stack_limits.megatron_models import unsayable_model
from meshwright.verbs.load_plan import load

if TYPE_CHECKING:
    from meshwright.runtime.checkpoint.formats.known_formats import Format
    from meshwright.runtime.checkpoint.formats.whole_states import WholeStates

TARGETS = ("dcp", "megatron", "meshwright")
MEGATRON = "megatron"
PLAN = "plan.yaml"
"""A run's plan, two folders above its checkpoints."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertedFormat:
    """The result of a conversion into another format.

    ``folder`` has ``tensors`` of ``size_bytes`` after ``step`` steps; ``left_out`` are states of the source that the
    target does not have.
    """

    folder: str
    source: str
    target: str
    step: int
    tensors: int
    size_bytes: int
    left_out: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the public form."""
        return {**asdict(self), "left_out": list(self.left_out)}


def converted_format(
    source: str | Path,
    output: str | Path,
    *,
    to: str,
    model: str | None = None,
    precision: str | None = None,
    trust: bool = False,
) -> ConvertedFormat:
    """Write a checkpoint in the format ``to``. Raises InputError with all problems of the request.

    ``model`` is needed where the source does not tell it, ``precision`` that of runs that go on; ``trust`` admits
    classes in pickles that are not known.
    """
    from meshwright.runtime.checkpoint.formats.known_formats import checkpoint_folder, source_format

    target = _empty_target(output)
    path = checkpoint_folder(Path(source))
    kind = source_format(path)
    graph = _model(path, kind, to, model)
    states = _named(_read(path, kind, graph, trust=trust), graph)
    place = target.with_name(f"{target.name}.unfinished")
    try:
        _begin(place)
        _write(place, to, states, graph, precision)
        states.finish()
        os.replace(place, target)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return ConvertedFormat(
        folder=str(target),
        source=kind,
        target=to,
        step=states.step,
        tensors=len(states.tensors),
        size_bytes=sum(file.stat().st_size for file in target.rglob("*") if file.is_file()),
        left_out=states.left_out,
    )


def _empty_target(output: str | Path) -> Path:
    """Return the folder to write. Raises InputError if it holds something."""
    path = Path(output)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        rule = "holds something already" if path.is_dir() else "is no folder"
        raise InputError(Problem("output", str(output), rule, "another folder, or remove it"))
    return path.absolute()


def _model(source: Path, kind: str, to: str, named: str | None) -> ModelGraph | None:
    """Return the model that is named, or that of the run which the source lies in. Raises InputError.

    Only Megatron's format needs one that the source itself does not describe in full.
    """
    if named is not None:
        graph = load_model(named)
    elif MEGATRON not in (kind, to):
        return None
    else:
        plan = source.absolute().parent.parent / PLAN
        if kind != "meshwright" or not plan.is_file():
            rule = "must be said: names and forms of Megatron's tensors follow from the model"
            raise InputError(Problem("model", None, rule, "--model MODEL"))
        graph = load(plan).setting.model
    if MEGATRON in (kind, to):
        _check_megatron(graph)
    return graph


def _check_megatron(model: ModelGraph) -> None:
    """Raise UnsupportedError for what the exporter to Megatron refuses of a model, and for tensors without a place."""
    from meshwright.runtime.checkpoint.formats.megatron_layout import megatron_places

    arch = model.architecture
    refused = [*unsayable_model(arch), *(refusal.why for refusal in family_refusals(arch))]
    problems = [Problem("model", f"{model.name} ({arch.family})", rule, "--to dcp") for rule in refused]
    if problems:
        raise UnsupportedError(problems)
    megatron_places(model)


def _read(source: Path, kind: "Format", model: ModelGraph | None, *, trust: bool) -> "WholeStates":
    """Return the states of a source. Raises InputError for damage."""
    from meshwright.runtime.checkpoint.formats.dcp_folder import DcpFolder
    from meshwright.runtime.checkpoint.formats.dcp_names import states_of_dcp
    from meshwright.runtime.checkpoint.formats.megatron_reader import read_megatron
    from meshwright.runtime.checkpoint.formats.meshwright_reader import read_meshwright

    if kind == "meshwright":
        return read_meshwright(source)
    folder = DcpFolder(source, trust=trust)
    if kind == "dcp":
        return states_of_dcp(folder)
    assert model is not None
    return read_megatron(folder, model)


def _write(
    place: Path, to: str, states: "WholeStates", model: ModelGraph | None, precision: str | None
) -> None:
    """Write the states into a folder that is empty. Raises InputError for what the format does not hold."""
    from meshwright.runtime.checkpoint.formats.dcp_names import dcp_entries
    from meshwright.runtime.checkpoint.formats.dcp_writer import write_dcp
    from meshwright.runtime.checkpoint.formats.megatron_writer import write_megatron
    from meshwright.runtime.checkpoint.formats.meshwright_writer import write_meshwright
    from meshwright.runtime.precision import PRECISIONS

    if precision is not None and precision not in PRECISIONS:
        raise InputError(Problem("precision", precision, "is no precision", nearest(precision, PRECISIONS)))
    if to == "dcp":
        write_dcp(place, *dcp_entries(states))
        return
    if to == MEGATRON:
        assert model is not None
        write_megatron(place, states, model)
        return
    if not states.model:
        rule = "the source does not tell its model, which a checkpoint of ours names"
        raise InputError(Problem("model", None, rule, "--model MODEL"))
    write_meshwright(place, states, precision)


def _named(states: "WholeStates", model: ModelGraph | None) -> "WholeStates":
    """Return states with the names and the facts of the model that is given. Raises InputError if it is another one."""
    from meshwright.model.named_tensors import stored_shapes
    from meshwright.runtime.checkpoint.compatibility import differences, model_facts
    from meshwright.runtime.checkpoint.formats.hugging_face_names import with_our_names
    from meshwright.runtime.checkpoint.formats.whole_states import check_shapes

    if model is None:
        return states
    if states.model:
        problems = list(differences("model", states.model, model_facts(model), "the model of that run"))
        if problems:
            raise InputError(problems)
        return states
    named = with_our_names(states, model)
    check_shapes(named, stored_shapes(model))
    return replace(named, model=model_facts(model))


def _begin(place: Path) -> None:
    from meshwright.runtime.checkpoint.run_folder import write_errors

    with write_errors(place):
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
