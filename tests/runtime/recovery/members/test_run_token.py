"""The token of a run: from the variable, or a file that only its user may read."""

import stat

import pytest

from meshwright.errors import InputError
from meshwright.runtime.recovery.members.run_token import VARIABLE, made_token, token_to_join


def test_a_made_token_is_in_a_file_of_the_user_alone(tmp_path):
    token, where = made_token(tmp_path / "run", {})
    path = tmp_path / "run" / "token"
    assert where == str(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(token) == 64
    assert token_to_join(tmp_path / "run", {}) == (token, str(path))
    assert made_token(tmp_path / "run", {})[0] != token


def test_a_given_token_is_not_written(tmp_path):
    given = {VARIABLE: "0123456789abcdef"}
    assert made_token(tmp_path, given) == (b"0123456789abcdef", VARIABLE)
    assert token_to_join(tmp_path, given) == (b"0123456789abcdef", VARIABLE)
    assert not list(tmp_path.iterdir())


def test_an_empty_file_is_no_token(tmp_path):
    (tmp_path / "token").write_text("\n", encoding="ascii")
    with pytest.raises(InputError, match="the token is empty"):
        token_to_join(tmp_path, {})


def test_those_who_join_without_a_token_are_told_where_it_is(tmp_path):
    with pytest.raises(InputError, match=r"no token: .*token cannot be read") as error:
        token_to_join(tmp_path, {})
    assert error.value.problems[0].suggestion
