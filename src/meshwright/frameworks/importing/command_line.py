"""Options of a framework's command line, gathered from a script: each once, with its values and where it stands.

An option that is written twice keeps its last value, as the frameworks' parsers do, unless the later one stands in an
``if``: a branch that may not be taken never overrides. Numbers that only a running shell knows are named as problems,
for a plan can not be read without them.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from meshwright.errors import InputError, Problem, nearest
from meshwright.frameworks.importing.imported_file import Fact
from meshwright.frameworks.importing.shell_script import Script, Word

_LAUNCHER = (
    "nproc_per_node nnodes node_rank master_addr master_port rdzv_backend rdzv_endpoint rdzv_id "
    "rdzv_conf standalone max_restarts monitor_interval start_method log_dir redirects tee role "
    "local_addr run_path module no_python num_gpus num_nodes hostfile include exclude launcher "
    "launcher_args ntasks ntasks_per_node nodes gres gpus_per_node gpus_per_task cpus_per_task "
    "container_image container_mounts container_workdir container_name container_writable "
    "kill_on_bad_exit mpi export output error job_name partition account time exclusive mem "
    "local_ranks_filter logs_specs signals_to_handle event_log_handler numa_binding virtual_local_rank "
    "num_processes num_machines machine_rank main_process_ip main_process_port config_file "
)
LAUNCHER = frozenset(_LAUNCHER.split())
"""Options of torchrun, srun, sbatch, and the launchers of DeepSpeed and Accelerate, with underscores."""


@dataclass(frozen=True, slots=True)
class GivenOption:
    """An option as a script gives it; ``line`` 0 where the format does not number its lines."""

    name: str
    values: tuple[str, ...]
    line: int
    known: bool = True
    conditional: bool = False

    @property
    def words(self) -> str:
        """The option as it is written."""
        return " ".join((self.name, *self.values))


def given_options(words: Iterable[Word]) -> list[GivenOption]:
    """All options with the words that follow them, in order."""
    found: list[list[Word]] = []
    open_ = False
    for word in words:
        if word.text.startswith("--") and len(word.text) > 2:
            found.append([word])
            open_ = True
        elif open_:
            found[-1].append(word)
        open_ = open_ and not word.ends
    return [_given(option) for option in found]


def _given(words: Sequence[Word]) -> GivenOption:
    name, equals, value = words[0].text.partition("=")
    values = ((value,) if equals else ()) + tuple(word.text for word in words[1:])
    known = words[0].known and all(word.known for word in words[1:2])
    return GivenOption(name, values, words[0].line, known, words[0].conditional)


def last_of_each(options: Iterable[GivenOption]) -> dict[str, GivenOption]:
    """Every option once."""
    kept: dict[str, GivenOption] = {}
    for option in options:
        before = kept.get(option.name)
        if before is None or before.conditional or not option.conditional:
            kept[option.name] = option
    return kept


def repeated(options: Sequence[GivenOption], relevant: Collection[str]) -> Iterator[Problem]:
    """Options that are set twice to different values outside of branches."""
    kept = last_of_each(options)
    for option in options:
        last = kept[option.name]
        if option.name in relevant and not option.conditional and option.values[:1] != last.values[:1]:
            rule = (
                f"is set to {_shown(option)} in line {option.line} and to {_shown(last)} in line {last.line}"
            )
            yield Problem(option.name, _shown(last), rule, f"{option.name} once", "warning")


def conditional_variables(script: Script) -> Iterator[Problem]:
    """Variables that a condition may change: the value that holds without it is taken."""
    for name, line in script.unsure.items():
        rule = f"line {line} may set it to something else: {script.variables[name]!r} is taken"
        yield Problem(
            name, script.variables[name], rule, f"--variable {name}={script.variables[name]}", "warning"
        )


def _shown(option: GivenOption) -> str:
    return option.values[0] if option.values else "on"


def is_launchers(name: str) -> bool:
    """Return true if an option belongs to the process launcher."""
    return name.lstrip("-").replace("-", "_") in LAUNCHER


def unknown_option_problems(
    options: Mapping[str, GivenOption], known: Collection[str], others: Collection[str], target: str
) -> Iterator[Problem]:
    """Yield options that ``target`` lacks; an option of ``others`` (its other releases) is a warning.

    What stands only in a branch may be the script's own options, and is passed over.
    """
    for name, option in options.items():
        if name in known or is_launchers(name) or option.conditional:
            continue
        near = nearest(name, known)
        if name in others:
            rule = f"other releases have this option, {target} has not"
            yield Problem(name, option.words, rule, near, "warning")
        else:
            yield Problem(name, option.words, f"{target} has no such option", near)


def raise_on_unknown_options(problems: Sequence[Problem]) -> None:
    """Raise InputError where an option is unknown to the framework: it would not start."""
    if any(problem.severity == "error" for problem in problems):
        raise InputError(problems)


def whole_number(option: GivenOption, problems: list[Problem]) -> int | None:
    """Return the option's value as a number from 1; None and a problem where it is none."""
    text = option.values[0] if option.values else ""
    if text.isdecimal() and len(text) < 19 and int(text) >= 1:
        return int(text)
    if text and not option.known:
        rule = "only a running shell knows this value"
        hint = f"write the number into line {option.line}, or say it with --variable NAME=value"
        problems.append(Problem(option.name, text, rule, hint))
    else:
        place = f"line {option.line}: " if option.line else ""
        rule = f"{place}must be a whole number from 1"
        problems.append(Problem(option.name, text, rule, f"{option.name} 1"))
    return None


@dataclass(frozen=True, slots=True)
class CommandLine:
    """The options of a command line as the values of an option table (``frameworks/option_table.py``).

    ``default_words`` are the words for all that the line leaves out, if they are not those of the options.
    """

    options: Mapping[str, GivenOption]
    problems: list[Problem]
    default_words: str = ""

    def __contains__(self, name: str) -> bool:
        """Return true if the line has the option."""
        return name in self.options

    def get(self, key: str, default: Any = None) -> Any:
        """Return the first word after the option, or ``default``."""
        given = self.options.get(key)
        return given.values[0] if given and given.values else default

    def number(self, key: str) -> int | None:
        """Return a whole number from 1; None and a problem where it is none."""
        return whole_number(self.options[key], self.problems)

    def truth(self, key: str) -> bool:
        """Return whether the flag is there."""
        return key in self.options

    def fact(self, key: str, value: Any) -> Fact:
        """Return ``value`` with the words of the line."""
        return Fact(value, self.options[key].words)

    def left_out(self, key: str, value: Any) -> str:
        """Return words for an option that the line leaves out."""
        return self.default_words or (f"no {key}" if value is False else f"{key} {value}")
