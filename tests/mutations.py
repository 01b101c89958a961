"""Damage as fuzzers do it: bits flipped, pieces cut, doubled, moved or put in, and numbers made large."""

import random
from collections.abc import Iterator, Sequence

_PIECES = [b"", b"\0", b"\n", b'"', b",", b"-1", b"9" * 30, b"1e999", b"nan", b"[" * 50, b"{" * 50, b"\xff" * 8, b"../",
           b"\xf0\x9f\x98\x80", b"*a", b"&a ", b"!!int ", b"\x7f\xff\xff\xff"]  # fmt: skip


def mutated(samples: Sequence[bytes], count: int, seed: int = 1) -> Iterator[bytes]:
    """``count`` damaged copies of ``samples``, the same for the same seed."""
    draw = random.Random(seed)
    for _ in range(count):
        data = bytearray(draw.choice(samples))
        for _ in range(draw.choice((1, 1, 1, 2, 4))):
            at = draw.randrange(len(data) + 1)
            end = min(len(data), at + draw.choice((1, 2, 4, 8, 40)))
            kind = draw.randrange(5)
            if kind == 0 and at < len(data):
                data[at] ^= 1 << draw.randrange(8)
            elif kind == 1:
                del data[at:end]
            elif kind == 2:
                data[at:at] = data[at:end]
            elif kind == 3:
                data[at:end] = draw.choice(_PIECES)
            else:
                data[at:at] = draw.choice(_PIECES)
        yield bytes(data)
