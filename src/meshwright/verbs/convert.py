"""Convert a checkpoint: into another format, or into the weights of a base with its trained adapters merged."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshwright.errors import InputError, Problem, nearest
from meshwright.model.load import load_config
from meshwright.model.named_tensors import adapter_shapes
from meshwright.verbs.checkpoint_conversion import TARGETS, ConvertedFormat, converted_format
from meshwright.verbs.run.frozen_base import base_of_checkpoint, model_of_base

CONFIG = "config.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """Merged weights: a ``folder`` with so many ``tensors``, ``merged`` of them with an adapter."""

    folder: str
    tensors: int
    merged: int
    step: int

    def to_json(self) -> dict[str, Any]:
        """Return the public form."""
        return {"folder": self.folder, "tensors": self.tensors, "merged": self.merged, "step": self.step}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertRequest:
    """A conversion: ``merge`` the adapters of a checkpoint into their base, or write it in the format ``to``.

    ``model``, ``precision`` and ``trust`` are of other formats (``checkpoint_conversion.py``).
    """

    merge: bool = False
    to: str | None = None
    output: str | Path | None = None
    model: str | None = None
    precision: str | None = None
    trust: bool = False


def converted(checkpoint: str | Path, request: ConvertRequest) -> Converted | ConvertedFormat:
    """Convert a checkpoint. Raises InputError with all that is wrong with the request, or with the first damage."""
    _check_request(request)
    output = Path(str(request.output))
    try:
        if request.to is None:
            return _merged(Path(checkpoint), output)
        return converted_format(
            checkpoint,
            output,
            to=request.to,
            model=request.model,
            precision=request.precision,
            trust=request.trust,
        )
    except ImportError as missing:
        rule = f"needs {missing.name}, which is not installed"
        raise InputError(Problem("convert", missing.name, rule, "pip install 'meshwright[run]'")) from missing


def _check_request(request: ConvertRequest) -> None:
    problems = []
    if request.merge == (request.to is not None):
        rule = "what to convert to must be said" if not request.merge else "either --merge or --to is meant"
        problems.append(Problem("merge", request.merge or None, rule, "--merge, or --to FORMAT"))
    if request.to is not None and request.to not in TARGETS:
        rule = "is no format that we write"
        problems.append(Problem("to", request.to, rule, nearest(request.to, TARGETS)))
    if request.output is None:
        problems.append(Problem("output", None, "where to write must be said", "--output FOLDER"))
    if request.to is None:
        given = {"model": request.model, "precision": request.precision, "trust": request.trust or None}
        rule, suggestion = "is of conversions into another format", "--to FORMAT, or without it"
        problems += [Problem(name, of, rule, suggestion) for name, of in given.items() if of is not None]
    if problems:
        raise InputError(problems)


def _merged(path: Path, target: Path) -> Converted:
    """Write the merged weights of a checkpoint of adapters as Hugging Face safetensors. Raises InputError."""
    from meshwright.runtime.checkpoint.manifest import facts_of, read_manifest
    from meshwright.runtime.checkpoint.whole_parameters import whole_parameters
    from meshwright.runtime.precision import PRECISIONS
    from meshwright.runtime.training.train_rank import base_tensors
    from meshwright.runtime.weights.adapter_values import BaseAndAdapters
    from meshwright.runtime.weights.merged_weights import MergedWeights
    from meshwright.runtime.weights.save import save

    manifest = read_manifest(path)
    base = base_of_checkpoint(facts_of(manifest))
    if base is None:
        rule = "holds no adapters: its run trained all parameters"
        raise InputError(Problem("checkpoint", str(path), rule, "run --export, for weights that are whole"))
    model = model_of_base(base)
    _check_model(manifest.model, model)
    stored, names = whole_parameters(path), adapter_shapes(model).keys()
    adapters, changed = ({n: stored[n] for n in of} for of in (names & stored.keys(), stored.keys() - names))
    weights = MergedWeights(
        model,
        BaseAndAdapters(base_tensors(base, model), changed),
        adapters,
        PRECISIONS[manifest.precision].compute,
    )
    save(target, model, weights)
    _write_config(target, base["model"])
    return Converted(folder=str(target), tensors=len(weights), merged=len(adapters) // 2, step=manifest.step)


def _check_model(stored: Mapping[str, object], model: Any) -> None:
    from meshwright.runtime.checkpoint.compatibility import differences, model_facts

    problems = list(differences("model", stored, model_facts(model), "the model of that run"))
    if problems:
        raise InputError(problems)


def _write_config(folder: Path, model: str) -> None:
    config = {name: value for name, value in load_config(model).items() if not name.startswith("_")}
    try:
        (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        rule = f"cannot be written: {error.strerror or error}"
        raise InputError(Problem("output", str(folder), rule, "a folder with enough room")) from None
