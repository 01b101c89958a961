"""One command at a time writes a data folder."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedscale_ext.core.errors import UserError
from fedscale_ext.util.locks import lock, removed_at_end


@contextmanager
def sole_writer(out_dir: Path) -> Iterator[None]:
    """Hold the name of a data folder against other commands, through a lock beside it that goes with the block.

    The system lets go when the process ends, however it ends. A file system without locks is no error.

    Raises:
        UserError: Another command holds it, or the folder above it cannot be written.

    """
    path = out_dir.parent / f".{out_dir.name}.lock"
    try:
        out_dir.parent.mkdir(parents=True, exist_ok=True)
        file = lock(path)
    except BlockingIOError:
        raise UserError(
            f"another command is writing {out_dir} at the moment: wait until it has ended, or name another folder"
        ) from None
    except OSError as error:
        raise UserError(f"{out_dir} cannot be written: {error.strerror}") from error
    with removed_at_end(file, path):
        yield
