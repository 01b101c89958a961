"""The secret of a job: 32 random bytes in a file that only its owner may read."""

import contextlib
import os
import secrets
import stat
from pathlib import Path

from fedscale_ext.core.errors import UserError
from fedscale_ext.util import full_disk

BYTES = 32


def new_token(path: Path) -> Path:
    """Write a fresh token to ``path``, readable only by this user; an earlier file is replaced. Returns ``path``."""
    return write_token(path, secrets.token_hex(BYTES))


def write_token(path: Path, digits: str) -> Path:
    """Write a token's hexadecimal digits as :func:`new_token` does."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()  # a new file has no reader yet, whatever the old one's mode was
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with full_disk.naming(path), os.fdopen(file, "w", encoding="ascii") as writer:
        writer.write(digits + "\n")
    return path


def token_in_memory(token: bytes) -> str:
    """Put a token into a file in memory, which the processes that this one starts or becomes may read.

    Returns:
        Its path there. It is gone with the last of these processes.

    """
    file = os.memfd_create("token", 0)  # without MFD_CLOEXEC: it is inherited
    os.fchmod(file, 0o600)
    os.write(file, f"{token.hex()}\n".encode())
    return f"/proc/self/fd/{file}"


def read_token(path: str | Path) -> bytes:
    """Read the token of a file; UserError where the file is missing, open to others, or holds something else."""
    path = Path(path).expanduser()
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(4 * BYTES)
    except OSError as error:
        raise UserError(f"token_file {path} cannot be read: {error.strerror}") from None
    if stat.S_IMODE(mode) & 0o077:
        raise UserError(f"token_file {path} may be read by others: run chmod 600 {path}")
    try:
        token = bytes.fromhex(text.decode("ascii"))
    except ValueError:
        token = b""
    if len(token) != BYTES:
        raise UserError(f"token_file {path} must hold {2 * BYTES} hexadecimal digits")
    return token
