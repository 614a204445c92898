"""Plain English in docstrings, headings, help texts, commit subjects and file names.

``prose_counts.json`` holds the number of breaches that each rule still allows. A count may only fall: after a
rewrite, lower it to the number that the failing test reports.
"""

import ast
import json
import re
import subprocess
import sys

import command_line
import pytest
from doc_pages import pages
from source_tree import PACKAGE, ROOT, modules, nodes

ALLOWED = json.loads((ROOT / "tests" / "house" / "prose_counts.json").read_text(encoding="utf-8"))
RIDDLE = re.compile(
    r"^(?:What|Which|Who|Whether|How|When)\b|\b(?:beside|told|said|handed|apart|anew|those that|of one's own)\b"
)
MAX_SUBJECT = 72
VERBS_LIKE_OTHER_FORMS = {
    *("Access", "Address", "Assess", "Bring", "Bypass", "Compress", "Cross", "Dismiss", "Embed", "Exceed"),
    *("Express", "Feed", "Focus", "Guess", "Miss", "Need", "Pass", "Press", "Proceed", "Process", "Seed"),
    *("Shed", "Speed", "Spread", "String", "Suppress"),
}
FILE_NAME_WORDS = ROOT / "tests" / "house" / "file_name_words.txt"
CATALOGUES = ("model/zoo", "stack/files", "stack/serving/files")  # files named after models and releases

SAME_NAME = {
    "activation_offload.py": "legality, schedule and execution of one plan field",
    "all_gather.py": "a form of context parallelism and its kernel",
    "annealing.py": "one search algorithm, two problems",
    "calibrate.py": "a verb and its command line",
    "check.py": "a verb and its command line",
    "communicator.py": "the real communicator and its emulation",
    "constraints.py": "a question's constraints, and the search's",
    "context_parallel.py": "a plan field and its legality",
    "convert.py": "a verb and its command line",
    "describe.py": "one `describe` for each noun, the verb and its command line",
    "emulate.py": "a verb and what it calls",
    "exhaustive.py": "one search algorithm, several problems",
    "expert_capacity.py": "one model feature on each floor",
    "exporter.py": "the entry point of each framework's export",
    "feedforward.py": "operators of a block and their plain reference",
    "graph.py": "a model's graph and the operator graph of a layer",
    "graph_schedule.py": "a verb and its rendering",
    "import_.py": "a verb and its command line",
    "importer.py": "the entry point of each framework's import",
    "ingest.py": "a verb and its command line",
    "interface.py": "the protocol of each family of kernels",
    "latent_attention.py": "a kernel and its plain reference",
    "deepspeed.py": "a framework's limits, and the parser of its logs",
    "megatron.py": "a framework's limits, and the parser of its logs",
    "torchtitan.py": "a framework's limits, and the parser of its logs",
    "option_conflicts.py": "options that each framework refuses together",
    "options.py": "each framework's table of options",
    "options_to_plan.py": "each framework's options read as a plan",
    "summary.py": "a log in figures; a plan's answer in 40 lines",
    "linear_attention.py": "a kernel and its plain reference",
    "state_space.py": "a kernel and its plain reference",
    "load.py": "the loader of each noun, and of weights",
    "lower_bound.py": "the bound of each search problem",
    "measure.py": "a verb and its command line",
    "multi_token_prediction.py": "one model feature: operators, export, import",
    "node_links.py": "one key of a cluster file: its meaning and its measurement",
    "pass_times.py": "durations of passes: spread vocabulary, and a verb's input",
    "pipeline_stages.py": "the same part of two frameworks' import",
    "plan_to_options.py": "the same part of each framework's export",
    "probe_jobs.py": "a verb and its rendering",
    "problem.py": "the statement of each search problem",
    "recompute_sets.py": "a model's recomputable operators, and the sets that a search tries",
    "ring_self_attention.py": "a form of context parallelism and its kernel",
    "router.py": "a router's description and its kernel",
    "save.py": "saving of weights and of checkpoints",
    "softmax_attention.py": "a kernel and its plain reference",
    "solve.py": "the solver of each search problem",
    "solver_schedules.py": "a verb's part and its rendering",
    "training_estimate.py": "a verb's part and its rendering",
    "token_ring.py": "a form of context parallelism and its kernel",
    "ulysses.py": "a form of context parallelism and its kernel",
    "unread_options.py": "the same part of each framework's import",
    "validate.py": "a verb and its command line",
    "verify.py": "a verb and its command line",
    "vocabulary_parallel.py": "legality and shapes of one plan field",
    "yaml_text.py": "YAML of plan files, and of launcher files",
}
"""Why files of one name stand in several folders: the folder says what differs."""


def _hold(rule, found):
    allowed = ALLOWED[rule]
    assert len(found) <= allowed, (
        f"{rule}: {len(found)} breaches, {allowed} allowed; among them {found[-20:]}"
    )
    assert len(found) >= 0.98 * allowed, f"lower {rule} in prose_counts.json from {allowed} to {len(found)}"


def _riddles(lines):
    return [line for line in lines if RIDDLE.search(line)]


def _first_docstring_lines():
    described = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for path in modules():
        for node in nodes(path):
            text = ast.get_docstring(node) if isinstance(node, described) else None
            if text:
                yield text.splitlines()[0]


def _git(*arguments):
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    except FileNotFoundError:
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []


@pytest.mark.parametrize("rule", ["D401", "D404"])
def test_docstrings_state_and_command(rule):
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--select", rule]
    done = subprocess.run(
        [*command, "--output-format", "json", "src"], cwd=ROOT, capture_output=True, text=True
    )
    _hold(rule, [f"{hit['filename']}:{hit['location']['row']}" for hit in json.loads(done.stdout)])


def test_first_docstring_lines_are_no_riddles():
    _hold("docstrings", _riddles(_first_docstring_lines()))


def test_headings_are_no_riddles():
    paths = {*pages().values(), *(ROOT / "benchmarks").glob("*.md"), ROOT / "CONTRIBUTING.md"}
    lines = [line for path in sorted(paths) for line in path.read_text(encoding="utf-8").splitlines()]
    _hold("headings", _riddles([line.lstrip("# ") for line in lines if re.match("#+ ", line)]))


def test_help_texts_are_no_riddles():
    texts = [
        text for verb in command_line.verbs() for text in (verb.help, *(p.help for p in verb.parameters))
    ]
    _hold("help", _riddles(texts))


def test_commit_subjects_say_what_changes():
    """Covers the commits made on top of the one that brought this file, where the history is there."""
    first = _git("log", "--diff-filter=A", "--format=%H", "--", "tests/house/test_prose.py")
    if not first:
        pytest.skip("no git history")
    subjects = _git("log", "--no-merges", "--ancestry-path", "--format=%s", f"{first[-1]}..HEAD")
    assert not [subject for subject in subjects if not _is_plain(subject)]


def _is_plain(subject):
    word = subject.partition(" ")[0]
    imperative = word in VERBS_LIKE_OTHER_FORMS or not word.endswith(("s", "ed", "ing"))
    return len(subject) <= MAX_SUBJECT and word[:1].isupper() and imperative and not RIDDLE.search(subject)


@pytest.mark.parametrize(
    ("subject", "plain"),
    [
        ("Search context-parallel forms", True),
        ("Pass the mesh to the executor", True),
        ("What a form asks of", False),
        ("search context-parallel forms", False),
        ("Searches context-parallel forms", False),
        ("Renamed the searched choices", False),
        ("Write the offload row beside the table", False),
        ("Vectorise the final gradient reduction over all of the pipeline stages", True),
        ("Vectorise the final gradient reduction over all of the pipeline's stages", True),
        ("Vectorise the final gradient reduction over all of the pipeline's stages too", False),
    ],
)
def test_the_rule_for_subjects(subject, plain):
    assert _is_plain(subject) == plain


def _named_paths():
    inside = [path for path in PACKAGE.rglob("*") if "__pycache__" not in path.parts]
    return [path for path in inside if path.parent not in {PACKAGE / folder for folder in CATALOGUES}]


def _words(path):
    return {word for word in re.split(r"[_.-]", path.stem) if word and not word.isdecimal()}


def test_file_names_are_made_of_terms_of_the_field():
    terms = FILE_NAME_WORDS.read_text(encoding="utf-8").split()
    assert terms == sorted(set(terms))
    used = {path: _words(path) for path in _named_paths()}
    new = {path.relative_to(PACKAGE).as_posix(): words - set(terms) for path, words in used.items()}
    assert not {name: words for name, words in new.items() if words}, (
        "use a term of the list, or argue for a new one"
    )
    assert not set(terms) - set().union(*used.values()), "words that no file name uses any more"


def test_files_of_one_name_have_a_reason():
    names = [path.name for path in modules() if path.name != "__init__.py"]
    assert {name for name in names if names.count(name) > 1} == SAME_NAME.keys()
