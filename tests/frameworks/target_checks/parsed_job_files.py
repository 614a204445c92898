"""Print what a torchtitan wheel's own ConfigManager reads of job files, as JSON: one object for each file.

    PYTHON tests/frameworks/target_checks/parsed_job_files.py FOLDER FILE...

FOLDER holds the unpacked wheel of a release before 0.3. Only its configuration is imported: the rest needs an old
PyTorch.
"""

import json
import sys
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType


def config_module(folder: Path) -> ModuleType:
    """Return the module with ``ConfigManager`` and ``JobConfig``, without running the package's own start."""
    package = ModuleType("torchtitan")
    package.__path__ = [str(folder / "torchtitan")]
    sys.modules["torchtitan"] = package
    is_old = (folder / "torchtitan" / "config_manager.py").exists()
    return import_module("torchtitan.config_manager" if is_old else "torchtitan.config")


def keys(cls: type, above: str = "") -> list[str]:
    """Return all keys of a configuration class, sections by themselves too."""
    found = []
    for field in fields(cls):
        found.append(f"{above}{field.name}")
        if is_dataclass(field.type):
            found += keys(field.type, f"{above}{field.name}.")
    return found


def main(folder: str, *paths: str) -> None:
    """Print the keys of the release, and the configuration of each file."""
    module = config_module(Path(folder))
    read = [module.ConfigManager().parse_args([f"--job.config_file={path}"]).to_dict() for path in paths]
    print(json.dumps({"keys": keys(module.JobConfig), "files": read}))


if __name__ == "__main__":
    main(*sys.argv[1:])
