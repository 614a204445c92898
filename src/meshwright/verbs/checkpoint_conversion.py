"""Convert a checkpoint between our format and PyTorch's DCP."""

import os
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from meshwright.errors import InputError, Problem, UnsupportedError, nearest
from meshwright.model.graph import ModelGraph
from meshwright.model.load import load_model

if TYPE_CHECKING:
    from meshwright.runtime.checkpoint.formats.known_formats import Format
    from meshwright.runtime.checkpoint.formats.whole_states import WholeStates

TARGETS = ("dcp", "meshwright")


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
    output: str | Path | None,
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
    from meshwright.runtime.checkpoint.formats.known_formats import source_format

    target = _checked_target(to, output)
    path = Path(source)
    kind = source_format(path)
    graph = None if model is None else load_model(model)
    states = _named(_read(path, kind, trust=trust), graph)
    place = target.with_name(f"{target.name}.unfinished")
    try:
        _begin(place)
        _write(place, to, states, precision)
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


def _checked_target(to: str, output: str | Path | None) -> Path:
    """Return the folder to write. Raises InputError for an unknown format, and for a folder that holds something."""
    problems = []
    if to not in TARGETS:
        problems.append(Problem("to", to, "is no format that we write", nearest(to, TARGETS)))
    if output is None:
        problems.append(Problem("output", None, "where to write must be said", "--output FOLDER"))
    elif Path(output).exists() and (not Path(output).is_dir() or any(Path(output).iterdir())):
        rule = "holds something already" if Path(output).is_dir() else "is no folder"
        problems.append(Problem("output", str(output), rule, "another folder, or remove it"))
    if problems or output is None:
        raise InputError(problems)
    return Path(output).absolute()


def _read(source: Path, kind: "Format", *, trust: bool) -> "WholeStates":
    """Return the states of a source. Raises InputError for damage."""
    from meshwright.runtime.checkpoint.formats.dcp_folder import DcpFolder
    from meshwright.runtime.checkpoint.formats.dcp_names import states_of_dcp
    from meshwright.runtime.checkpoint.formats.meshwright_reader import read_meshwright

    if kind == "meshwright":
        return read_meshwright(source)
    if kind == "megatron":
        rule = "is a checkpoint of Megatron, which is not read yet"
        raise UnsupportedError(Problem("source", str(source), rule, "a checkpoint of DCP"))
    return states_of_dcp(DcpFolder(source, trust=trust))


def _write(place: Path, to: str, states: "WholeStates", precision: str | None) -> None:
    """Write the states into a folder that is empty. Raises InputError for what the format does not hold."""
    from meshwright.runtime.checkpoint.formats.dcp_names import dcp_entries
    from meshwright.runtime.checkpoint.formats.dcp_writer import write_dcp
    from meshwright.runtime.checkpoint.formats.meshwright_writer import write_meshwright
    from meshwright.runtime.precision import PRECISIONS

    if precision is not None and precision not in PRECISIONS:
        raise InputError(Problem("precision", precision, "is no precision", nearest(precision, PRECISIONS)))
    if to == "dcp":
        write_dcp(place, *dcp_entries(states))
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
