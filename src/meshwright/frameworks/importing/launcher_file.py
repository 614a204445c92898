"""Read what a configuration leaves to the training script from the launcher that export wrote with it.

``frameworks/exporting/hugging_face_script.py`` writes it: the plan's numbers as variables of the shell.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from meshwright.frameworks.importing.imported_file import Fact, ImportedFile
from meshwright.workload.base_types import QUANTISED

LAUNCHER = "launch.sh"
OURS = re.compile(r"\A#!.*\n# meshwright \S+ for (?:deepspeed|accelerate) ")
EXPORTED = re.compile(r"(?m)^export ((?:[A-Z_]+=[a-z0-9_.,]+ ?)+)$")
NUMBERS = {
    "MICRO_BATCH": "pipeline.micro_batch",
    "SEQ_LEN": "workload.seq_len",
    "GLOBAL_BATCH": "workload.global_batch",
}


def launcher_beside(path: str | Path) -> str:
    """Return the text of the launcher in the same folder; empty where there is none of ours."""
    try:
        text = Path(path).with_name(LAUNCHER).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""
    return text if OURS.match(text) else ""


def with_launcher(file: ImportedFile, launcher: str) -> ImportedFile:
    """Return the file with what only its launcher says; what the file says itself holds."""
    words = [word for found in EXPORTED.findall(launcher) for word in found.split()]
    values = dict(word.split("=") for word in words)
    facts = {
        path: Fact(int(values[name]), f"{LAUNCHER}: {name}={values[name]}")
        for name, path in NUMBERS.items()
        if values.get(name, "").isdecimal()
    }
    if values.get("RECOMPUTE") in ("none", "full"):
        facts["recompute"] = Fact(values["RECOMPUTE"], f"{LAUNCHER}: RECOMPUTE={values['RECOMPUTE']}")
    facts |= _adapter(values)
    return replace(file, facts=facts | dict(file.facts))


def _adapter(values: Mapping[str, str]) -> dict[str, Fact]:
    """Return the adapters that the launcher tells its training script of."""
    found = {name: values.get(f"ADAPTER_{name.upper()}", "") for name in ("rank", "alpha", "targets", "base")}
    if not found["rank"].isdecimal():
        return {}
    words = f"{LAUNCHER}: ADAPTER_RANK={found['rank']}"
    adapter: dict[str, Any] = {"rank": int(found["rank"]), "targets": found["targets"].split(",")}
    if found["alpha"].replace(".", "", 1).isdecimal():
        adapter["alpha"] = float(found["alpha"])
    if found["base"] in QUANTISED:
        adapter["base"] = found["base"]
    return {"workload.task": Fact("lora", words), "workload.adapter": Fact(adapter, words)}
