"""What the size of the input allows: how often a network may halve it."""

from fedscale_ext.core.errors import UserError

_SHORTEST = 4  # pixels along the shorter side of the last map that named models keep, if they can


def early_halvings(input_shape: tuple[int, int, int], early: int, later: int) -> int:
    """How many of its first ``early`` halvings a network made for large photographs keeps.

    ``later`` more follow that belong to its stages. For small inputs the early ones are left out, the
    last first, until the last map is at least 4 pixels high and wide (all of them at 3x32x32 and
    1x28x28 for ``later`` = 3, none at 3x128x128).
    """
    side = min(input_shape[1:])
    return next((halvings for halvings in range(early, 0, -1) if -(-side // 2 ** (halvings + later)) >= _SHORTEST), 0)


def check_depth(model: str, input_shape: tuple[int, int, int], halvings: int) -> None:
    """UserError where a network that halves its input so often leaves one pixel: BatchNorm needs more than one."""
    _, height, width = input_shape
    least = 2**halvings + 1
    if min(height, width) < least:
        raise UserError(
            f"a {model} halves its input {halvings} times; {height}x{width} is too small, "
            f"use at least {least}x{least} or a model with fewer reductions"
        )
