"""Reads pickles of plain data only: FedScale's traces are dictionaries of numbers and lists.

The only place that touches pickle, and it never lets one run: before anything is built, every opcode
of the file is looked at, and any that imports, calls, or is not needed for plain data is refused by name.
"""

import pickle
import pickletools
from pathlib import Path
from typing import Any, NoReturn

from fedscale_ext.errors import UserError

# everything that builds None, bool, int, float, text, bytes, list, tuple, dict out of literal values
_PLAIN = frozenset(
    """PROTO STOP FRAME MARK POP POP_MARK DUP NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 LONG4
    FLOAT BINFLOAT UNICODE SHORT_BINUNICODE BINUNICODE BINUNICODE8 STRING BINSTRING SHORT_BINSTRING
    EMPTY_LIST LIST APPEND APPENDS EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_DICT DICT SETITEM SETITEMS
    PUT BINPUT LONG_BINPUT GET BINGET LONG_BINGET MEMOIZE""".split()
)


class _NothingImported(pickle.Unpickler):
    """A second wall: also the reader itself has no way to a name outside of the file."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise UserError(f"the pickle asks for {module}.{name}; traces hold only numbers, text, lists and dictionaries")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise UserError("the pickle asks for a persistent object; traces hold only plain data")


def read_plain_pickle(path: Path) -> Any:
    """The plain data in a pickle file.

    Raises UserError, naming the opcode or the global, for anything else, and for a truncated file.
    """
    content = path.read_bytes()
    last_text: list[str] = []
    try:
        for opcode, argument, place in pickletools.genops(content):
            if isinstance(argument, str):
                last_text = [*last_text[-1:], argument]
            if opcode.name not in _PLAIN:
                named = argument if isinstance(argument, str) else ".".join(last_text)
                what = f" ({named})" if named and "GLOBAL" in opcode.name else ""
                raise UserError(
                    f"{path}: pickle opcode {opcode.name}{what} at byte {place} is refused: "
                    "traces hold only numbers, text, lists and dictionaries; convert the file to npz or csv"
                )
        with path.open("rb") as file:
            return _NothingImported(file).load()
    except (ValueError, EOFError, IndexError, KeyError, TypeError, AttributeError, UnicodeDecodeError, MemoryError,
            OverflowError, pickle.UnpicklingError) as error:  # fmt: skip
        raise UserError(f"{path} is not a whole pickle of plain data: {error}") from None
