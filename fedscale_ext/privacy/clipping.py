"""By what a client's change of its model is shortened. Done where clients train (``tasks/reduction.py``)."""


def clip_factor(norm: float, limit: float) -> float:
    """What a change of this norm is multiplied by so that its norm is at most ``limit``; its direction stays."""
    return 1.0 if norm <= limit else limit / norm
