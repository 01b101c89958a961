"""``fedscale methods new``: a package with a working method, its test and a job, under a name of one's own."""

import keyword
import re
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from fedscale_ext.config.methods import method_names
from fedscale_ext.core.errors import UserError
from fedscale_ext.data.folders import new_folder

# a package that runs as it is, under the name that stands for the user's
_SKELETON = Path(__file__).with_name("skeleton")
_NAME, _CLASS = "mymethod", "MyMethod"
_LONGEST = 20  # keeps the lines of the skeleton below 120 characters


def write_skeleton(name: str, out: Path) -> list[Path]:
    """Write the skeleton of method ``name`` into the new or empty folder ``out``: all of it, or nothing.

    Returns its files, relative to ``out``. UserError for a name that cannot be a method's, a Python package's and a
    class's at once, and for a folder that holds something.
    """
    check_name(name)
    try:
        if out.exists() and not (out.is_dir() and not any(out.iterdir())):
            raise UserError(f"{out} is there already and nothing of it is replaced; name another folder with -o")
        out.parent.mkdir(parents=True, exist_ok=True)
        aside = new_folder(out.parent, f".{out.name}-")
    except OSError as error:
        raise UserError(f"{out} cannot be written: {error.strerror}; name another folder with -o") from None
    try:
        files = [_copy(source, aside, name) for source in _sources()]
        aside.rename(out)
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


def _sources() -> list[Path]:
    return [path for path in _SKELETON.rglob("*") if path.is_file() and "__pycache__" not in path.parts]


def _copy(source: Path, folder: Path, name: str) -> Path:
    """A file of the skeleton under the user's name; its place relative to ``folder``."""
    path = Path(str(source.relative_to(_SKELETON)).replace(_NAME, name))
    camel = "".join(word.capitalize() for word in name.split("_"))
    text = source.read_text(encoding="utf-8").replace(_NAME, name).replace(_CLASS, camel)
    (folder / path).parent.mkdir(exist_ok=True)
    (folder / path).write_text(text, encoding="utf-8")
    return path
