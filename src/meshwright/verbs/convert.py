"""Convert the checkpoint of a run into another form: the weights of a base with its trained adapters merged."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshwright.errors import InputError, Problem
from meshwright.model.load import load_config
from meshwright.model.named_tensors import adapter_shapes
from meshwright.verbs.run.frozen_base import base_of_checkpoint, model_of_base

CONFIG = "config.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """The result of a conversion: a ``folder`` with so many ``tensors``, ``merged`` of them with an adapter."""

    folder: str
    tensors: int
    merged: int
    step: int

    def to_json(self) -> dict[str, Any]:
        """Return the public form."""
        return {"folder": self.folder, "tensors": self.tensors, "merged": self.merged, "step": self.step}


def merged(checkpoint: str | Path, output: str | Path | None, *, merge: bool) -> Converted:
    """Write the merged weights of a checkpoint of adapters as Hugging Face safetensors. Raises InputError.

    It is also raised without ``merge``, which is the only conversion.
    """
    missing_options = [
        Problem(name, None, rule, hint)
        for given, name, rule, hint in (
            (merge, "merge", "what to convert to must be said", "--merge"),
            (output, "output", "where to write must be said", "--output FOLDER"),
        )
        if not given
    ]
    if missing_options or output is None:
        raise InputError(missing_options)
    try:
        from meshwright.runtime.checkpoint.manifest import facts_of, read_manifest
        from meshwright.runtime.checkpoint.whole_parameters import whole_parameters
        from meshwright.runtime.precision import PRECISIONS
        from meshwright.runtime.training.train_rank import base_tensors
        from meshwright.runtime.weights.adapter_values import BaseAndAdapters
        from meshwright.runtime.weights.merged_weights import MergedWeights
        from meshwright.runtime.weights.save import save
    except ImportError as missing:
        rule = f"needs {missing.name}, which is not installed"
        raise InputError(Problem("convert", missing.name, rule, "pip install 'meshwright[run]'")) from missing
    path, target = Path(checkpoint), Path(output)
    manifest = read_manifest(path)
    base = base_of_checkpoint(facts_of(manifest))
    if base is None:
        rule = "holds no adapters: its run trained all parameters"
        raise InputError(Problem("checkpoint", str(path), rule, "run --export, for weights that are whole"))
    model = model_of_base(base)
    _check_model(manifest.model, model)
    stored, names = whole_parameters(path, manifest), adapter_shapes(model).keys()
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
