"""FedTrans's Model Aggregator (Zhu et al., MLSys 2024, section 4.3): soft aggregation across models.

Departures from the paper:

* Eq 5's denominator lacks eta^t, so its coefficients sum to less than one and weights shrink each
  round; the default divides by the decayed sum (``normalise="decayed"``).
* t is the round, as the text says, so that late models get little from older ones. Where the text's "as the model
  converges" is taken for a model's age, ``decay_clock="age"`` starts the decay anew at each birth.
* Per-cell similarities lie in [-1, 1] and are "cumulated"; the default is their mean, at least 0.
* A smaller model enters a larger one lifted through the recorded transformations, so that it still
  computes its function there; laid on the leading part (``align="prefix"``) its split columns mix badly.
* Cells inserted since have no counterpart: they take only the newer model's weights.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from fedscale_ext.core.model_spec import ModelSpec
from fedscale_ext.core.types import Coverage, State
from fedscale_ext.methods.fedtrans.model_transformer import Transformation, lift
from fedscale_ext.methods.fedtrans.params import FedTransParams
from fedscale_ext.models.cells import cell_parameters
from fedscale_ext.submodels import count_mean, prefix

Contribution = tuple[int, State, Coverage | None]  # index of a model, its weights in another's shape, what they cover


@dataclass(frozen=True)
class Lineage:
    """Where a model of the chain comes from.

    ``steps`` lead from its parent (the model before it) to it; ``root`` is the index of the model
    whose weights it descends from (its own where it was re-initialised); ``birth`` the round of creation.
    """

    birth: int = 0
    root: int = 0
    steps: tuple[Transformation, ...] = ()


def similarity(older: Mapping[str, int], newer: Mapping[str, int], *, inherited: bool, reduce: str = "mean") -> float:
    """sim of two models from their cells' numbers of parameters, by cell id (section 4.2).

    Each cell of the newer model counts #param(older) / #param(newer) for its counterpart, 0 where it
    was inserted since, -1 where its weights were not inherited; "cumulated" as mean or sum, at least 0.
    """
    counts = []
    for cell, size in newer.items():
        if cell not in older:
            counts.append(0.0)
        elif not inherited:
            counts.append(-1.0)
        else:
            counts.append(older[cell] / size if size else 1.0)
    total = float(np.sum(counts) if reduce == "sum" else np.mean(counts))
    return max(0.0, total)


def similarity_matrix(specs: Sequence[ModelSpec], lineage: Sequence[Lineage], params: FedTransParams) -> np.ndarray:
    """float64 [models, models], symmetric; sim(M, M) = 1, or the number of cells where they are summed."""
    sizes = [cell_parameters(spec) for spec in specs]
    matrix = np.empty((len(specs), len(specs)))
    for i in range(len(specs)):
        for j in range(i, len(specs)):
            inherited = lineage[j].root <= i
            value = similarity(sizes[i], sizes[j], inherited=inherited, reduce=params.sim_reduce)
            matrix[i, j] = matrix[j, i] = value
    return matrix


def sharing(j: int, sims: np.ndarray, params: FedTransParams) -> np.ndarray:
    """float64 [models]: sim(M_i, M_j) of the models that share with j, the denominators of Eq 5 as printed.

    0 for models that do not share with j: larger ones unless ``l2s``, all others with sharing off.
    """
    if params.sharing == "none":
        return sims[j, j] * np.eye(len(sims))[j]
    shares = sims[:, j].copy()
    if not params.l2s:
        shares[j + 1 :] = 0.0
    return shares


def mixing_weights(
    j: int, round: int, sims: np.ndarray, lineage: Sequence[Lineage], params: FedTransParams
) -> np.ndarray:
    """float64 [models]: eta^(1(i != j) t) sim(M_i, M_j), the numerators of Eq 5 for model j."""
    age = round - lineage[j].birth if params.decay_clock == "age" else round
    decay = params.eta**age if params.decay == "on" else 1.0
    weights = decay * sharing(j, sims, params)
    weights[j] = sims[j, j]
    return weights


def soft_aggregate(
    j: int,
    specs: Sequence[ModelSpec],
    states: Sequence[State],
    lineage: Sequence[Lineage],
    weights: np.ndarray,
    sims: np.ndarray,
    params: FedTransParams,
) -> State:
    """w_j of Eq 5 from every model's averaged weights, entry by entry over the models that cover it.

    Args:
        j: Index of the model.
        specs: Specs of all models, oldest first.
        states: Their averaged states.
        lineage: Where each of them comes from.
        weights: Numerators of Eq 5 for j, float64 [models], from :func:`mixing_weights`.
        sims: Similarities float64 [models, models].
        params: FedTrans's hyperparameters; ``normalise`` says what the denominators are.

    Returns:
        The new state of model j.

    """
    literal = params.normalise == "literal"
    shares = sharing(j, sims, params) if literal else weights  # a weight that decayed to 0 still divides as printed
    contributions = [
        (i, *_in_shape_of(j, i, specs, states, lineage, params)) for i in np.flatnonzero(shares > 0).tolist()
    ]
    mixed = count_mean(
        states[j], ((state, covered, weights[i]) for i, state, covered in contributions if weights[i] > 0)
    )
    return _scaled(mixed, _literal_factors(states[j], contributions, weights, shares)) if literal else mixed


def _literal_factors(
    reference: State, contributions: Sequence[Contribution], weights: np.ndarray, shares: np.ndarray
) -> State:
    """(Sum of weights) / (sum of sim) of the models that cover each entry: Eq 5 as printed divides only by sim.

    Args:
        reference: The state whose entries are covered.
        contributions: Index, state and coverage of each model that shares.
        weights: Numerators of Eq 5, float64 [models].
        shares: Denominators as printed, float64 [models].

    Returns:
        float64 by name, in the shapes of ``reference``; 1 where no model covers an entry.

    """
    ones = {name: torch.ones_like(value, dtype=torch.float64) for name, value in reference.items()}
    quotients: Iterable[tuple[State, Coverage | None, float]] = (
        (_filled(state, weights[i] / shares[i]), covered, float(shares[i])) for i, state, covered in contributions
    )
    return count_mean(ones, quotients)


def _filled(state: State, number: float) -> State:
    """Tensors float64 in the shapes of a state, each full of one number."""
    return {name: torch.full_like(value, number, dtype=torch.float64) for name, value in state.items()}


def _scaled(state: State, factors: State) -> State:
    """A state whose floating-point tensors are multiplied by factors of their shapes."""
    return {
        name: (value.double() * factors[name]).to(value.dtype) if value.is_floating_point() else value
        for name, value in state.items()
    }


def _in_shape_of(
    j: int,
    i: int,
    specs: Sequence[ModelSpec],
    states: Sequence[State],
    lineage: Sequence[Lineage],
    params: FedTransParams,
) -> tuple[State, Coverage | None]:
    """Bring model i's weights into the shape of model j.

    Args:
        j: Index of the model whose shape they take.
        i: Index of the model whose weights they are.
        specs: Specs of all models.
        states: Their averaged states.
        lineage: Where each of them comes from.
        params: FedTrans's hyperparameters.

    Returns:
        The weights, and the entries of j that they cover (None: all).

    """
    if i == j:
        return states[j], None
    if i > j:  # large to small: HeteroFL's crop of the leading part
        crop = {name: states[i][name][tuple(slice(n) for n in value.shape)] for name, value in states[j].items()}
        return crop, None
    if params.align == "prefix":
        return states[i], prefix(states[j], states[i])
    steps = [step for model in lineage[i + 1 : j + 1] for step in model.steps]
    return lift(specs[i], states[i], steps)
