"""Readers of job files accept what is written, and name what is spoilt."""

import subprocess

import pytest

from meshwright.launchers.parsers import script_parsers
from meshwright.launchers.parsers.check_files import SCHEMAS, source, verdicts
from meshwright.launchers.parsers.option_tables import (
    TORCHRUN,
    options_of,
    sbatch_faults,
    torchrun_table_faults,
)
from meshwright.launchers.parsers.script_parsers import bash_faults, torchrun_faults, torchrun_words

SCRIPT = (
    'exec torchrun \\\n  --nnodes "${NNODES}" \\\n  --node-rank "${NODE_RANK}" \\\n  --no-python prog "$@"\n'
)


def faults(path, text):
    return [fault for verdict in verdicts({path: text}) for fault in verdict.faults]


def test_every_schema_names_its_source_and_release():
    assert {name: source(name) for name in SCHEMAS.values()} == {
        "config_map": "ConfigMap of Kubernetes v1",
        "persistent_volume_claim": "PersistentVolumeClaim of Kubernetes v1",
        "trainjob": "kubeflow/trainer v2.3.0",
        "jobset": "kubernetes-sigs/jobset v0.12.0",
        "rayjob": "ray-project/kuberay v1.7.0",
        "skypilot": "task of SkyPilot 0.14.1",
    }


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("#SBATCH --nodes=0", "--nodes: '0' must be a whole number above 0"),
        ("#SBATCH --node=2", "--node is no option; did you mean --nodes"),
        ("#SBATCH --job-name=", "--job-name needs a value"),
        ("#SBATCH --contiguous=yes", "--contiguous takes no value"),
        ("#SBATCH --signal=B:USR1@soon", "is no [B:]SIGNAL[@SECONDS]"),
        ("#SBATCH", "names no option"),
    ],
)
def test_options_that_sbatch_does_not_take_are_named_with_their_line(line, fault):
    (found,) = sbatch_faults(f"#!/bin/bash\n{line}\necho\n")[1]
    assert found.startswith("line 2: ")
    assert fault in found


def test_sbatch_reads_options_only_before_the_first_command_of_a_script():
    assert sbatch_faults("#!/bin/bash\n# note\n\n#SBATCH --requeue\necho\n")[1] == ()
    (late,) = sbatch_faults("#!/bin/bash\necho\n#SBATCH --requeue\n")[1]
    assert "behind the first command" in late
    assert "the first line names no interpreter (#!)" in sbatch_faults("#SBATCH --requeue\n")[1]


def test_a_script_that_bash_cannot_read_is_refused():
    assert faults("launch.sh", "#!/bin/bash\nexit 0\n") == []
    assert "syntax error" in " ".join(faults("launch.sh", "#!/bin/bash\nif true; then\n"))


def test_without_bash_a_script_is_not_accepted(monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert bash_faults("exit 0\n") == ("bash, which reads the script, is not installed here",)


def test_a_program_that_python_cannot_read_is_refused():
    assert faults("job.x.py", "print('a')\n") == []
    assert len(faults("job.x.py", "print('a'\n")) == 1


def test_a_document_of_another_kind_or_no_document_is_refused():
    assert "kind: Pod is none of" in faults("job.jobset.yaml", "kind: Pod\n")[0]
    assert faults("job.jobset.yaml", "# nothing\n") == ["holds no document"]
    assert len(faults("job.jobset.yaml", "a: [\n")) == 1


def test_scripts_inside_a_config_map_are_read_too():
    text = 'apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  launch.sh: "if true\\n"\n'
    (bad,) = [verdict for verdict in verdicts({"job.jobset.yaml": text}) if verdict.faults]
    assert (bad.path, bad.by) == ("job.jobset.yaml", "bash -n (launch.sh)")


def test_a_plan_that_is_none_is_refused():
    assert any("layuot" in fault for fault in faults("plan.yaml", "plan: 1\nlayuot: {}\n"))


def test_variables_of_a_script_get_values_for_its_parser():
    assert torchrun_words(SCRIPT) == ["--nnodes", "1", "--node-rank", "1", "--no-python", "prog"]


def test_torchrun_itself_refuses_a_command():
    pytest.importorskip("torch")
    by, (fault,) = torchrun_faults(SCRIPT.replace("${NODE_RANK}", "first"))
    assert by == "torchrun's own parser"
    assert "--node-rank" in fault


def test_without_torch_the_table_reads_its_command(monkeypatch):
    monkeypatch.setattr(script_parsers.subprocess, "run", _no_torch)
    script_parsers._parsed.cache_clear()
    assert torchrun_faults(SCRIPT) == (TORCHRUN, ())
    (fault,) = torchrun_faults(SCRIPT.replace("--node-rank", "--node-rnak"))[1]
    assert "did you mean --node-rank" in fault
    script_parsers._parsed.cache_clear()


def _no_torch(words, **options):
    assert options["input"].startswith("[")
    return subprocess.CompletedProcess(words, 3, "", "")


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["--max-restarts", "many", "prog"], "is no number"),
        (["--standalone=1", "prog"], "takes no value"),
        (["--nnodes=2"], "names no program to start"),
        (["--nnodes="], "needs a value"),
    ],
)
def test_the_table_of_torchrun_names_values_that_do_not_fit(words, fault):
    assert any(fault in found for found in torchrun_table_faults(words))


def test_the_table_of_torchrun_is_that_of_its_parser():
    parser = pytest.importorskip("torch.distributed.run").get_args_parser()
    theirs = {
        option.replace("_", "-"): action.nargs == 0
        for action in parser._actions
        for option in action.option_strings
    }
    assert {name: option.value == "none" for name, option in options_of("torchrun").items()} == theirs
