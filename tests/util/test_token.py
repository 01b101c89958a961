import stat
from pathlib import Path

import pytest

from fedscale_ext.core.errors import UserError
from fedscale_ext.util.token import new_token, read_token


def test_a_token_is_new_each_time_and_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.touch(0o644)
    first = read_token(new_token(path))
    assert len(first) == 32
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_token(new_token(path)) != first


def test_a_file_that_is_no_secret_token_is_named(tmp_path: Path) -> None:
    path = new_token(tmp_path / "token")
    path.chmod(0o640)
    with pytest.raises(UserError, match=f"chmod 600 {path}"):
        read_token(path)
    for text in ("", "12", "zz" * 32, "12" * 33, "é" * 32):
        path.chmod(0o600)
        path.write_text(text, encoding="utf-8")
        with pytest.raises(UserError, match="64 hexadecimal digits"):
            read_token(path)
    with pytest.raises(UserError, match="cannot be read"):
        read_token(tmp_path / "none")
