"""``fedscale methods new``: a package with a working method, its tests and a job, under a name of one's own.

A package has the files of ``skeleton/common`` and those of its kind. If a kind has a file of the same name, its lines
go into the common one.
"""

import keyword
import os
import re
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from fedscale_ext.config.methods import method_names
from fedscale_ext.core.errors import UserError
from fedscale_ext.util.temporary_folders import new_folder

# packages that run as they are, under the name that stands for the user's
_SKELETON = Path(__file__).with_name("skeleton")
_NAME, _CLASS = "mymethod", "MyMethod"
_LONGEST = 20  # keeps the lines of the skeleton below 120 characters
_HERE = "  # what the kind adds\n"  # the line of a common file that a kind's lines replace


Kind = Literal["averaging", "submodel", "personal", "distillation"]


def write_skeleton(name: str, out: Path, kind: Kind = "averaging") -> list[Path]:
    """Write the skeleton of a method: all of it, or nothing.

    Args:
        name: The method's name.
        out: A new or empty folder.
        kind: What the method begins as.

    Returns:
        The files, relative to ``out``.

    Raises:
        UserError: The name cannot be a method's, a Python package's and a class's at once, or the folder holds
            something.

    """
    check_name(name)
    try:
        if out.exists() and not (out.is_dir() and not any(out.iterdir())):
            raise UserError(f"{out} is there already and nothing of it is replaced; name another folder with -o")
        target = Path(os.path.realpath(out))  # "." has no name, and a link cannot be replaced by a folder
        inside = target.is_dir()  # somebody may work in it, so that it is filled rather than replaced
        target.parent.mkdir(parents=True, exist_ok=True)
        aside = new_folder(target if inside else target.parent, f".{target.name}-")
    except OSError as error:
        raise UserError(f"{out} cannot be written: {error.strerror}; name another folder with -o") from None
    try:
        files = [_write(aside, path, text, name) for path, text in _texts(kind).items()]
        if inside:
            for path in list(aside.iterdir()):
                path.rename(target / path.name)
            aside.rmdir()
        else:
            aside.rename(target)
    except OSError as error:
        shutil.rmtree(aside, ignore_errors=True)
        raise UserError(f"{out} cannot be written: {error.strerror}; name another folder with -o") from None
    return sorted(files)


def check_name(name: str) -> None:
    """Check that ``name`` can be a method, a Python package and, without its underscores, a class; UserError
    otherwise."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name) or len(name) > _LONGEST:
        raise UserError(
            f"{name!r} cannot name a method: use small letters, digits and single underscores, {_LONGEST} at most, "
            "with a letter first, as in my_method"
        )
    if name in method_names():
        raise UserError(f"there is a method {name!r} already (see `fedscale methods`); choose another name")
    if keyword.iskeyword(name) or name in sys.stdlib_module_names or name in ("tests", "test") or find_spec(name):
        raise UserError(f"{name!r} is a word or a package of Python's, or an installed one; choose another name")


def _texts(kind: Kind) -> dict[Path, str]:
    """The files of a kind's skeleton: text by path."""
    texts = _read(_SKELETON / "common")
    for path, text in _read(_SKELETON / kind).items():
        texts[path] = texts[path].replace(_HERE, text) if path in texts else text
    return texts


def _read(folder: Path) -> dict[Path, str]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
    return {path.relative_to(folder): path.read_text(encoding="utf-8") for path in files}


def _write(folder: Path, template: Path, text: str, name: str) -> Path:
    """Write a file of the skeleton under the user's name; return its path relative to ``folder``."""
    path = Path(str(template).replace(_NAME, name))
    camel = "".join(word.capitalize() for word in name.split("_"))
    (folder / path).parent.mkdir(exist_ok=True)
    (folder / path).write_text(text.replace(_NAME, name).replace(_CLASS, camel), encoding="utf-8")
    return path
