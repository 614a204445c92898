"""torchtitan's releases before 0.3 read the sample job files as we do. Needs ``bash scripts/parsers.sh torchtitan``."""

import json
import subprocess
import tomllib
from pathlib import Path

import pytest

from meshwright.frameworks.nested_keys import nested_keys
from meshwright.frameworks.option_names import option_names
from meshwright.frameworks.torchtitan.importing.job_file import DEFAULTS, USUAL, read_job_file
from meshwright.frameworks.torchtitan.importing.release_keys import RELEASES, renamed_keys
from meshwright.frameworks.torchtitan.importing.unread_options import LOSSES

ROOT = Path(__file__).resolve().parents[3]
PYTHON = ROOT / "parsers" / "torchtitan" / "bin" / "python"
SAMPLES = ROOT / "tests" / "frameworks" / "importing" / "torchtitan_jobs"


def values_of(data):
    return {".".join(path): value for path, value in nested_keys(data)}


def parsed(release, *paths):
    """Return the keys of a release, and the values of each file by key."""
    folder = ROOT / "parsers" / f"torchtitan-{release}"
    if not PYTHON.exists() or not folder.exists():
        pytest.skip(f"{folder} is not there: bash scripts/parsers.sh torchtitan")
    script = Path(__file__).with_name("parsed_job_files.py")
    command = [str(PYTHON), str(script), str(folder), *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    answer = json.loads(done.stdout.splitlines()[-1])
    return answer["keys"], [values_of(data) for data in answer["files"]]


@pytest.mark.slow
@pytest.mark.parametrize("release", RELEASES)
def test_the_list_of_a_release_has_the_keys_of_its_classes(release):
    keys, _ = parsed(release)
    assert sorted(keys) == sorted(option_names("torchtitan", release))


@pytest.mark.slow
@pytest.mark.parametrize("release", RELEASES)
def test_samples_are_accepted_with_the_values_that_we_read(release):
    paths = sorted(SAMPLES.glob(f"{release}-*.toml"))
    _, found = parsed(release, *paths)
    assert len(found) == len(paths) >= 3
    for path, values in zip(paths, found, strict=True):
        text = path.read_text(encoding="utf-8")
        stated = {key: value for key, value in values_of(tomllib.loads(text)).items() if key in values}
        assert {key: values[key] for key in stated if not isinstance(stated[key], dict)} == {
            key: value for key, value in stated.items() if not isinstance(value, dict)
        }
        options = read_job_file(text).options
        numbers = {
            name.removeprefix("--"): option.values[0] for name, option in options.items() if option.values
        }
        both = [name for name in numbers if isinstance(values.get(name), int)]
        assert both
        assert {name: numbers[name] for name in both} == {name: str(values[name]) for name in both}


@pytest.mark.slow
@pytest.mark.parametrize("release", RELEASES)
def test_defaults_and_usual_values_are_those_of_the_release(release, tmp_path):
    empty = tmp_path / "empty.toml"
    empty.write_text("", encoding="utf-8")
    _, (values,) = parsed(release, empty)
    newest = {renamed_keys().get(key, key): "" if value is None else value for key, value in values.items()}
    ours = {**DEFAULTS, **USUAL, **{key: loss.usual for key, loss in LOSSES.items()}}
    shared = ours.keys() & newest
    assert {key: ours[key] for key in shared} == {key: newest[key] for key in shared}
