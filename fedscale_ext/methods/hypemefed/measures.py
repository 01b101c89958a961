"""How near generated weights are to trained ones (Shin et al., SenSys 2024, figures 12 and 14), and what they do.

Generated weights are 5 to 12 times nearer to a client's than random ones, which says little: the old global layer
is nearer still. So errors stand beside those of other guesses.
"""

from collections import defaultdict
from collections.abc import Iterable
from statistics import fmean

import torch

from fedscale_ext.methods.hypemefed.pairs import Tensors


def weight_error(guess: Tensors, true: Tensors) -> tuple[float, float]:
    """Mean absolute error of a guess over all entries of ``true``, and the same relative to mean |true| (Fig 14a)."""
    error = sum(float((guess[name].double() - value.double()).abs().sum()) for name, value in true.items())
    size = sum(float(value.double().abs().sum()) for value in true.values())
    count = sum(value.numel() for value in true.values())
    return error / count, error / size if size else 0.0


def movement(old: Tensors, new: Tensors, trained: Tensors, generated: Tensors | None = None) -> dict[str, float]:
    """Measure what a round did to the layers of ``trained``.

    Args:
        old: The whole network before the round.
        new: The whole network after it.
        trained: Mean T of these layers over the clients that trained them.
        generated: Mean G of the generated ones, if there are any.

    Returns:
        "step": |new - old| / |T - old|; "cosine": between these two; "norm": |G| / |T|. A quotient by nothing is 0.

    """
    names = sorted(trained)
    before, target = _flat(old, names), _flat(trained, names)
    moved, towards = _flat(new, names) - before, target - before
    result = {
        "step": _quotient(moved.norm(), towards.norm()),
        "cosine": _quotient(moved @ towards, moved.norm() * towards.norm()),
    }
    if generated is not None:
        result["norm"] = _quotient(_flat(generated, names).norm(), target.norm())
    return result


def _flat(tensors: Tensors, names: list[str]) -> torch.Tensor:
    return torch.cat([tensors[name].double().flatten() for name in names])


def _quotient(a: torch.Tensor, b: torch.Tensor) -> float:
    return float(a / b) if float(b) else 0.0


class RoundMeasures:
    """Measures of a round's generated layers, by layer.

    ``trained``: states of the clients that trained some of them, with their weights in the round's mean.
    """

    def __init__(self, trained: Iterable[tuple[Tensors, float]]) -> None:
        self._trained = list(trained)
        self._sums: dict[str, torch.Tensor] = {}
        self._weights: dict[str, float] = defaultdict(float)
        self._errors: dict[str, list[float]] = defaultdict(list)

    def _target(self, name: str) -> torch.Tensor | None:
        """Mean of a layer over the clients that trained it in this round."""
        real = [(state[name].double(), weight) for state, weight in self._trained if name in state]
        total = sum(weight for _, weight in real)
        return torch.stack([value * (weight / total) for value, weight in real]).sum(0) if real else None

    def add(self, generated: Tensors, weight: float) -> None:
        """Add the layers that were generated for a client of that weight."""
        for name, value in generated.items():
            target = self._target(name)
            if target is not None:
                self._sums[name] = self._sums.get(name, 0.0) + weight * value.double()
                self._weights[name] += weight
                self._errors[name].append(weight_error({name: value}, {name: target})[0])

    def result(self, old: Tensors, new: Tensors) -> dict[str, dict[str, float]]:
        """Measures of each layer that was both trained and generated.

        Args:
            old: The whole network before the round.
            new: The whole network after it.

        Returns:
            By layer, ``mae`` of generated weights against the mean of trained ones (mean over clients); ``normalised``
            by its entries' size; ``mae_old`` of the round's start; ``mae_random`` of the target's own entries in random
            order; and :func:`movement`.

        """
        figures = {}
        for name, total in self._sums.items():
            target = self._target(name)
            assert target is not None
            mae = fmean(self._errors[name])
            order = torch.randperm(target.numel(), generator=torch.Generator().manual_seed(0))
            shuffled = target.flatten()[order].view_as(target)
            figures[name] = {
                "mae": mae,
                "normalised": mae / max(float(target.abs().mean()), 1e-30),
                "mae_old": weight_error({name: old[name]}, {name: target})[0],
                "mae_random": weight_error({name: shuffled}, {name: target})[0],
                **movement({name: old[name]}, {name: new[name]}, {name: target}, {name: total / self._weights[name]}),
            }
        return figures
