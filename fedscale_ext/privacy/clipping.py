"""The factor that bounds the norm of a client's change; ``tasks/reduction.py`` applies it where clients train."""


def clip_factor(norm: float, limit: float) -> float:
    """Return the factor that scales a change of this norm down to at most ``limit``; 1.0 where it is within."""
    return 1.0 if norm <= limit else limit / norm
