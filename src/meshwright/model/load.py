"""Load a model from the zoo, a ``config.json``, or a Hugging Face hub id.

A name is tried in this order: a name of the zoo as it is written there, the text of a configuration (it begins with
``{``), a file or folder, another spelling of a zoo model such as its hub id (``model/zoo_names.py``), and last any
other hub id, the only one that needs a network.

The zoo (``model/zoo/NAME.json``) holds configurations of released models and of published tables in the form
of a Hugging Face ``config.json``; ``_source`` says where the sizes come from.
"""

import json
import re
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from itertools import islice
from os.path import expanduser
from pathlib import Path

from meshwright.errors import InputError, Problem, nearest
from meshwright.model.families.architecture_table import read_architecture
from meshwright.model.graph import ModelGraph
from meshwright.model.hub import fetch_config
from meshwright.model.operators.blocks import build_graph
from meshwright.model.zoo_names import zoo_name, zoo_names

LARGEST_FILE_BYTES = 4 * 2**20
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
MOST_NEIGHBOURS = 1000
"""Entries of a folder among which a near name is looked for."""

ZOO = "zoo:"
OWN_MODEL = "own-model"
"""Name of a model that is given as the text of its configuration."""
Fetch = Callable[[str], bytes]


def load_model(name_or_path: str | Path, *, fetch: Fetch = fetch_config) -> ModelGraph:
    """Load the graph of a zoo model, of a ``config.json`` (a file, its folder or its text), or of a hub id.

    ``fetch`` returns the bytes of a hub id's configuration; a name below a folder that is here is no hub id. Raises
    InputError for an unknown name and for a file that is absent, unreadable or wrong, with all that is wrong with it.
    """
    name = str(name_or_path)
    if name in zoo_names():
        return _zoo_graph(name)
    data, title, source = _read(name, fetch)
    if source == ZOO + title:
        return _zoo_graph(title)
    return build_graph(read_architecture(_json_object(data, source), title, source))


@cache
def _zoo_graph(name: str) -> ModelGraph:
    """Return the graph of a zoo model, built at its first use; questions ask for the same models again and again."""
    data, _, source = _zoo_bytes(name)
    config = _json_object(data, source)
    return build_graph(read_architecture(config, name, str(config["_source"])))


def load_config(name_or_path: str | Path, *, fetch: Fetch = fetch_config) -> dict[str, object]:
    """Load the unchanged ``config.json`` of a model; same names and errors as ``load_model``."""
    data, _, source = _read(str(name_or_path), fetch)
    return _json_object(data, source)


def _read(name: str, fetch: Fetch) -> tuple[bytes, str, str]:
    """Return the bytes of a model's configuration, the model's name, and the source of the bytes."""
    if name in zoo_names():
        return _zoo_bytes(name)
    if name.lstrip().startswith("{"):
        return name.encode(), OWN_MODEL, "text"
    if _looks_like_file(name):
        return _file_bytes(Path(expanduser(name)))
    _check_local(name)
    zoo_spelling = zoo_name(name)
    if zoo_spelling is not None:
        return _zoo_bytes(zoo_spelling)
    if HUB_ID.fullmatch(name):
        return fetch(name), name.split("/")[1], f"hub:{name}"
    raise InputError(
        Problem(
            "model", name, "no zoo model, file or hub id (org/name) of that name", nearest(name, zoo_names())
        )
    )


def _zoo_bytes(name: str) -> tuple[bytes, str, str]:
    return files("meshwright.model").joinpath("zoo", f"{name}.json").read_bytes(), name, ZOO + name


def _looks_like_file(name: str) -> bool:
    """Return true for a path that exists or is spelled like one; the empty name is neither."""
    spelled = name.endswith(".json") or name.startswith(("./", "../", "/", "~"))
    try:
        return spelled or (bool(name) and Path(name).exists())
    except (OSError, ValueError):
        return False


def _check_local(name: str) -> None:
    """Refuse a path below a folder of this machine that leads nowhere: no hub is asked for it."""
    try:
        folder = next((above for above in Path(name).parents[:-1] if above.is_dir()), None)
        if folder is None:
            return
        there = islice(folder.iterdir(), MOST_NEIGHBOURS)
        near = [entry.name for entry in there if entry.suffix == ".json" or entry.is_dir()]
    except (OSError, ValueError):
        return
    rule = f"the folder {folder} is on this machine and holds no such model"
    missing = Path(name).relative_to(folder).parts[0]
    raise InputError(Problem("model", name, rule, nearest(missing, near) or "give the path of a config.json"))


def _file_bytes(path: Path) -> tuple[bytes, str, str]:
    try:
        file = path / "config.json" if path.is_dir() else path
        if not file.is_file():
            raise InputError(Problem("model", str(file), "no such file", "give the path of a config.json"))
        with file.open("rb") as stream:
            data = stream.read(LARGEST_FILE_BYTES + 1)
        name = file.resolve().parent.name if file.name == "config.json" else file.stem
    except (OSError, ValueError) as error:
        raise InputError(Problem("model", str(path), f"cannot be read: {error}", "check the path")) from error
    return data, name or "model", str(file)


def _json_object(data: bytes, source: str) -> dict[str, object]:
    suggestion = "a config.json is one JSON object of a few kilobytes"
    if len(data) > LARGEST_FILE_BYTES:
        rule = f"the file is longer than {LARGEST_FILE_BYTES // 2**20} MiB"
        raise InputError(Problem("model", source, rule, suggestion))
    if not data.strip():
        raise InputError(Problem("model", source, "the file is empty", suggestion))
    try:
        config = json.loads(data)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InputError(Problem("model", source, f"not JSON: {reason}", suggestion)) from error
    if not isinstance(config, dict):
        rule = f"holds a {type(config).__name__}, must hold an object"
        raise InputError(Problem("model", source, rule, suggestion))
    return config
