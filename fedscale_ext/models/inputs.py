"""The number of halvings that a network can make of an input of a given size."""

from fedscale_ext.core.errors import UserError

_SHORTEST = 4  # smallest side of the last map in pixels that named models keep, if possible


def early_halvings(input_shape: tuple[int, int, int], early: int, later: int) -> int:
    """Return how many of its early halvings a network for large photographs keeps.

    For small inputs early halvings are left out, the last first, until the last map is at least 4 pixels high and wide.
    With ``later`` = 3, all are left out at 3x32x32 and 1x28x28, none at 3x128x128.

    Args:
        input_shape: Shape of a sample, (C, H, W).
        early: Number of early halvings of the network.
        later: Number of later halvings, which belong to its stages.

    """
    side = min(input_shape[1:])
    return next((halvings for halvings in range(early, 0, -1) if -(-side // 2 ** (halvings + later)) >= _SHORTEST), 0)


def check_depth(model: str, input_shape: tuple[int, int, int], halvings: int) -> None:
    """Raise UserError if so many halvings would leave one pixel, since BatchNorm needs more than one."""
    _, height, width = input_shape
    least = 2**halvings + 1
    if min(height, width) < least:
        raise UserError(
            f"a {model} halves its input {halvings} times; {height}x{width} is too small, "
            f"use at least {least}x{least} or a model with fewer reductions"
        )
