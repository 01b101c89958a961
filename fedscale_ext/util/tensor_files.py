"""Tensors in files with a digest, which are either whole or absent.

A tensor file is a safetensors file whose metadata holds, beside what the caller gives, ``sha256``:
the digest of the file itself with that field filled with zeros. safetensors checks the structure
of a file but not its numbers; the digest finds a single flipped bit anywhere.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import safetensors
import safetensors.torch
import torch

from fedscale_ext.core.errors import UserError
from fedscale_ext.util.atomic_files import write_atomic
from fedscale_ext.util.reading import load_json, open_plain

_DIGEST = "sha256"
_ZEROS = "0" * 64


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> str:
    """Write tensors and text metadata atomically; equal content gives equal bytes. Returns the file's digest.

    Tensors may share memory or be strided views; each is stored whole.
    """
    return write_section(path, in_memory(tensors), metadata)


def in_memory(tensors: Mapping[str, torch.Tensor]) -> bytes:
    """Return tensors as a safetensors file in memory; later changes of the tensors do not reach it."""
    return safetensors.torch.save(_apart(tensors))


def write_section(path: Path, section: bytes | memoryview, metadata: Mapping[str, str]) -> str:
    """Write the tensors of a safetensors file in memory as :func:`write_tensors` would. Returns the file's digest."""
    header, body = _split(section)
    # safetensors writes metadata in hash order, which would differ from run to run
    header["__metadata__"] = dict(sorted({**metadata, _DIGEST: _ZEROS}.items()))
    head = _head(header)
    digest = _digest(head, body)
    write_atomic(path, head.replace(f'"{_DIGEST}":"{_ZEROS}"'.encode(), f'"{_DIGEST}":"{digest}"'.encode()), body)
    return digest


def read_section(path: Path) -> bytes:
    """Return a file of :func:`write_tensors` as it is, which is a safetensors file; UserError where it is damaged."""
    return _verified(path)[0]


def digest_of_tensors(path: Path) -> str:
    """Return the digest of a file as :func:`write_tensors` returned it; UserError where the file is damaged."""
    return _read(path)[2]


def read_tensors(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Tensors and metadata of a file of :func:`write_tensors`; UserError where it is damaged."""
    tensors, metadata, _ = _read(path)
    return tensors, metadata


def _read(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, str], str]:
    """Tensors, metadata and digest of a file."""
    blob, metadata, stated = _verified(path)
    try:
        return safetensors.torch.load(blob), metadata, stated
    except (ValueError, KeyError, AttributeError, TypeError, safetensors.SafetensorError) as error:
        raise _damaged(path, error) from None


def _verified(path: Path) -> tuple[bytes, dict[str, str], str]:
    """Content, metadata and digest of a file whose digest is right."""
    try:
        with open_plain(path) as file:
            blob = file.read()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    try:
        header, body = _split(blob)
        metadata = {str(key): str(value) for key, value in header["__metadata__"].items()}
        stated = metadata.pop(_DIGEST)
        head = blob[: len(blob) - len(body)]
        if _digest(head.replace(stated.encode(), _ZEROS.encode(), 1), body) != stated:
            raise ValueError("its sha256 differs from the one that it states")
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise _damaged(path, error) from None
    return blob, metadata, stated


def _damaged(path: Path, error: Exception) -> UserError:
    reason = f"its header lacks {error}" if isinstance(error, KeyError) else str(error)
    return UserError(f"{path} is damaged or no file of this program: {reason}")


def _apart(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors on the CPU, contiguous; those that share memory (tied weights) copied, which safetensors refuses."""
    result = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    end = 0
    for name, tensor in sorted(result.items(), key=lambda item: item[1].data_ptr()):
        begin = tensor.data_ptr()
        if begin < end:
            result[name] = tensor.clone()
        end = max(end, begin + tensor.nbytes)
    return result


def _split(blob: bytes | memoryview) -> tuple[dict, memoryview]:
    """Header and tensor bytes of a safetensors file: u64 length, JSON, bytes."""
    length = int.from_bytes(blob[:8], "little")
    if len(blob) < 8 or length > len(blob) - 8:
        raise ValueError("it is cut off in its header")
    try:
        return load_json(bytes(blob[8 : 8 + length])), memoryview(blob)[8 + length :]
    except ValueError:
        raise ValueError("its header is not JSON") from None


def _head(header: dict) -> bytes:
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # tensor bytes start at a multiple of eight
    return len(text).to_bytes(8, "little") + text


def _digest(head: bytes, body: memoryview) -> str:
    sha = hashlib.sha256(head)
    sha.update(body)
    return sha.hexdigest()
