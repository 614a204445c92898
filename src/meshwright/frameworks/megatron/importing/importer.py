"""Import from Megatron-LM: a launch script or an argument file for ``pretrain_gpt.py``, or the same options as YAML.

Source: megatron-core 0.19.2, ``megatron/training/arguments.py``: option names, defaults and what ``validate_args``
refuses. The distributed optimizer and Megatron-FSDP shard over dp·cp / instances. Without
``--expert-tensor-parallel-size`` experts are cut over tp. Names that only other releases have are known too.
"""

import re
from collections.abc import Iterator, Mapping

from meshwright.errors import InputError, Problem
from meshwright.frameworks.importing.command_line import (
    CommandLine,
    GivenOption,
    conditional_variables,
    given_options,
    last_of_each,
    raise_on_unknown_options,
    repeated,
    unknown_option_problems,
)
from meshwright.frameworks.importing.imported_file import ALONE, Fact, ImportedFile, OutsideFacts
from meshwright.frameworks.importing.shell_script import Script, read_script
from meshwright.frameworks.megatron.importing.option_conflicts import rule_problems
from meshwright.frameworks.megatron.importing.options_to_plan import RELEVANT, option_facts
from meshwright.frameworks.megatron.importing.unread_options import unread_options
from meshwright.frameworks.megatron.options import TABLE
from meshwright.plans.files.yaml_text import read_mapping

DEVICES: Mapping[str, tuple[str, ...]] = {
    "nodes": ("--nnodes", "--num_nodes", "--nodes"),
    "per_node": ("--nproc_per_node", "--nproc-per-node", "--gpus-per-node", "--num_gpus"),
}
"""Options of launchers that say how many processes there are."""
OPTION_KEY = re.compile(r"(?m)^\s*['\"]?--[a-z0-9-]+['\"]?\s*:")
"""An option as a key of YAML."""
OWN_PROGRAMS = ("pretrain_gpt.py", "pretrain_mamba.py", "pretrain_hybrid.py")


def import_megatron(text: str, outside: OutsideFacts = ALONE) -> ImportedFile:
    """Read a Megatron launch script."""
    script = read_script(_as_script(text))
    options = given_options(script.words)
    kept = last_of_each(options)
    if not any(name in RELEVANT for name in kept):
        rule = "has none of Megatron's options of parallelism, batch or model"
        sourced = any(word.text in ("source", ".") for word in script.words)
        hint = "the file that it sources" if sourced else "a script with --tensor-model-parallel-size …"
        raise InputError(Problem("file", _some(kept), rule, hint))
    problems = list(_unknown(kept, script))
    raise_on_unknown_options(problems)
    problems += [*repeated(options, RELEVANT), *conditional_variables(script)]
    line = CommandLine(kept, problems)
    facts = option_facts(line, outside) | _devices(kept)
    return ImportedFile(
        source="megatron",
        release=TABLE.full_name,
        facts=facts,
        unread=unread_options(kept),
        problems=(*problems, *rule_problems(line, facts, script.variables)),
    )


def _as_script(text: str) -> str:
    """YAML with Megatron's options as keys becomes the same options in a line each; a script stays."""
    if not OPTION_KEY.search(text) and "--" in text:
        return text
    try:
        data = read_mapping(text, "file")
    except InputError:
        return text
    return "\n".join(_yaml_options(data, TABLE.names))


def _yaml_options(data: Mapping[str, object], known: frozenset[str]) -> Iterator[str]:
    for key, value in data.items():
        name = "--" + key.strip("-").replace("_", "-")
        if isinstance(value, Mapping):
            yield from _yaml_options(value, known)
        elif value is False and name in known:
            continue
        elif name in known or key.startswith("--"):
            values = value if isinstance(value, tuple) else () if value is True or value is None else (value,)
            yield " ".join([name, *("'" + str(v).replace("'", "") + "'" for v in values)])


def _unknown(options: Mapping[str, GivenOption], script: Script) -> Iterator[Problem]:
    """Unknown options are errors for Megatron's own programs; another program may have added its own."""
    programs = [word.text for word in script.words if word.text.endswith(".py")]
    own = not programs or any(program.endswith(OWN_PROGRAMS) for program in programs)
    for problem in unknown_option_problems(options, TABLE.names, TABLE.other_names, TABLE.full_name):
        if own or problem.severity == "warning":
            yield problem
        else:
            yield Problem(problem.field, problem.value, problem.rule, problem.suggestion, "warning")


def _devices(options: Mapping[str, GivenOption]) -> dict[str, Fact]:
    """Nodes times processes per node, where the script starts them itself."""
    found: dict[str, tuple[int, str]] = {}
    for role, names in DEVICES.items():
        for name in names:
            given = options.get(name)
            if given and given.known and given.values and given.values[0].isdecimal():
                found.setdefault(role, (int(given.values[0][:9]), given.words))
    if set(found) != set(DEVICES):
        return {}
    (nodes, first), (each, second) = found["nodes"], found["per_node"]
    return {"devices": Fact(nodes * each, f"{first} {second}")}


def _some(options: Mapping[str, GivenOption]) -> str:
    return " ".join(list(options)[:5]) or "no option"
