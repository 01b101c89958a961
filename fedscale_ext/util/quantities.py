"""Numbers for people."""


def quantity(value: float) -> str:
    """Write a number with three digits and an SI letter: 2.51 M, 1.2 P."""
    value = float(f"{value:.3g}")  # first, so that 999,900 is 1 M and not 1e+03 k
    for size, letter in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g} {letter}"
    return f"{value:.3g}"


def percent(share: float | None) -> str:
    """Write a share in [0, 1] as per cent; a dash where there is none."""
    return "–" if share is None else f"{100 * share:.2f} %"
