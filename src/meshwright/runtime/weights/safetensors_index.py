"""List the tensors of a checkpoint's folder and their files, in Hugging Face's layout.

One ``model.safetensors``, or several files and ``model.safetensors.index.json`` with a ``weight_map`` from tensor to
file. This module only opens files and does not read tensors.
"""

import json
from contextlib import ExitStack
from pathlib import Path

from safetensors import SafetensorError, safe_open

from meshwright.errors import InputError, Problem
from meshwright.runtime.weights.stored_parts import StoredTensor

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
LARGEST_INDEX_BYTES = 2**26
SUGGESTION = "give the folder of a checkpoint in the safetensors format"


class Folder:
    """An open checkpoint: ``files`` maps each stored tensor to its file. Use it in a ``with``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._open = ExitStack()
        self._handles: dict[str, safe_open] = {}
        single = path / SINGLE
        self.files = dict.fromkeys(self._handle(SINGLE).keys(), SINGLE) if single.exists() else _index(path)

    def __enter__(self) -> "Folder":
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def tensor(self, name: str) -> StoredTensor:
        """Return a stored tensor of ``files``. Raises InputError if its file cannot be read or lacks it."""
        file = self.files[name]
        handle = self._handle(file)
        try:
            stored: StoredTensor = handle.get_slice(name)
        except SafetensorError:
            rule = f"{INDEX} says that it is in {file}, which does not hold it"
            raise InputError(Problem(name, file, rule, "fetch the checkpoint again")) from None
        return stored

    def _handle(self, file: str) -> safe_open:
        if file not in self._handles:
            try:
                handle = safe_open(self.path / file, framework="pt")
            except (OSError, SafetensorError) as error:
                rule = f"cannot be read: {' '.join(str(error).split())[:200]}"
                raise InputError(Problem("weights", str(self.path / file), rule, SUGGESTION)) from None
            self._handles[file] = self._open.enter_context(handle)
        return self._handles[file]


def _index(path: Path) -> dict[str, str]:
    """Return the ``weight_map`` of a checkpoint in several files."""
    index = path / INDEX
    try:
        with index.open("rb") as stream:
            text = stream.read(LARGEST_INDEX_BYTES + 1)
        if len(text) > LARGEST_INDEX_BYTES:
            raise ValueError(f"longer than {LARGEST_INDEX_BYTES // 2**20} MiB")
        data = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())[:200]
        raise InputError(Problem("weights", str(index), f"cannot be read: {reason}", SUGGESTION)) from None
    files = data.get("weight_map") if isinstance(data, dict) else None
    if not isinstance(files, dict) or not files or not all(isinstance(file, str) for file in files.values()):
        rule = "weight_map must map names of tensors to names of files"
        raise InputError(Problem("weights", str(index), rule, SUGGESTION))
    problems = [problem for file in sorted(set(files.values())) for problem in _file_problems(path, file)]
    if problems:
        raise InputError(problems)
    return files


def _file_problems(path: Path, file: str) -> list[Problem]:
    if Path(file).name != file or not file.endswith(".safetensors"):
        rule = f"{INDEX} must name safetensors files beside it"
        return [Problem("weights", file, rule, "fetch the checkpoint again")]
    if not (path / file).is_file():
        return [Problem("weights", str(path / file), "no such file", "fetch it")]
    return []
