"""Federated evaluation: paths judged by clients on their own validation data (FedorAS, section 4.7).

The public code leaves it unimplemented. Here each generation of a search is sent to ``rounds`` times ``clients`` of
them, or to more, so that each path has a judge. They are drawn without return, and sent the minimal supernet that holds
the generation's operators. A client judges the paths within its own budget whose operators its devices support. A
path's score is the mean over all examples that it was judged on. Kendall's tau says how well two rankings of the paths
agree.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fedscale_ext.core.errors import UserError
from fedscale_ext.core.missing_values import ratios
from fedscale_ext.models.supernet.family import Tables

Ops = tuple[tuple[str, ...], ...]


def minimal_supernet(ops: Ops, paths: Iterable[Sequence[str]]) -> Ops:
    """Operators of each layer that any of the paths takes.

    Args:
        ops: Operators of the whole supernet, layer by layer.
        paths: An operator for each layer.

    Returns:
        Operators, in the order of ``ops``.

    """
    taken = [set(layer) for layer in zip(*paths, strict=True)]
    return tuple(tuple(name for name in held if name in names) for held, names in zip(ops, taken, strict=True))


@dataclass(frozen=True)
class EvaluationCall:
    """The call to judge a generation.

    ``ops`` of the minimal supernet; numbers of ``clients`` (int64, in the order in which they were drawn); ``judges``:
    the paths that each of them judges, bool [clients, paths].
    """

    ops: Ops
    clients: np.ndarray
    judges: np.ndarray


def check_afforded(macs: np.ndarray, budgets: np.ndarray) -> None:
    """Raise UserError if no client affords the dearest path.

    Args:
        macs: MACs per sample of the paths, float64 [paths].
        budgets: MACs per sample, float64 [all clients]; below 0 for a client without validation data.

    """
    if budgets.max() < macs.max():
        raise UserError(
            f"no client with validation data affords a path of {macs.max() / 1e6:.6g} MMACs, so that nobody can judge "
            "it; lower the bracket of its tier, or search centrally"
        )


def call(
    tables: Tables, paths: Sequence[Sequence[str]], able: np.ndarray, clients: int, rng: np.random.Generator
) -> EvaluationCall:
    """Draw the clients that judge a generation.

    Each path that somebody can judge has a judge: where ``clients`` of them cannot judge all paths, more are drawn.

    Args:
        tables: Costs of the operators.
        paths: Paths of the generation.
        able: Whether a client can judge a path, bool [all clients, paths]; somebody can judge one.
        clients: How many are drawn from those that can judge a path; all where these are fewer.
        rng: Draws them.

    Returns:
        The call. Its supernet has the operators of the paths that somebody can judge.

    """
    drawn = rng.permutation(np.flatnonzero(able.any(1)))[:clients]
    missing = able.any(0) & ~able[drawn].any(0)
    while missing.any():
        judged = (able & missing).sum(1)
        client = rng.choice(np.flatnonzero(judged == judged.max()))
        drawn = _without_spare(np.append(drawn, client), able, clients)
        missing &= ~able[client]
    ops = minimal_supernet(tables.ops, [paths[index] for index in np.flatnonzero(able.any(0)).tolist()])
    return EvaluationCall(ops, drawn + 1, able[drawn])


def _without_spare(drawn: np.ndarray, able: np.ndarray, clients: int) -> np.ndarray:
    """Leave out the last client whose paths all have other judges, until ``clients`` are left or all are needed.

    Indices, int64 [clients].
    """
    while len(drawn) > clients:
        judges = able[drawn]
        spare = np.flatnonzero((~judges | (judges.sum(0) > 1)).all(1))
        if not len(spare):
            break
        drawn = np.delete(drawn, spare[-1])
    return drawn


def mean_scores(sums: np.ndarray, examples: np.ndarray) -> np.ndarray:
    """Mean scores over all examples.

    Args:
        sums: Scores summed over each client's examples, float64 [clients, paths].
        examples: Number of these examples, float64 [clients, paths]; 0 where a client did not judge.

    Returns:
        float64 [paths]; NaN for a path without examples.

    """
    return ratios(sums.sum(0), examples.sum(0))


def kendall_tau(one: Sequence[float] | np.ndarray, other: Sequence[float] | np.ndarray) -> float:
    """Kendall's tau-b of two scores of the same paths: 1 for the same ranking, -1 for the reverse. Paths without a
    finite score in both are left out; NaN where fewer than two remain, or one of the scores is the same for all."""
    from scipy.stats import kendalltau  # slow to import

    a, b = np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)
    both = np.isfinite(a) & np.isfinite(b)
    if both.sum() < 2 or np.ptp(a[both]) == 0 or np.ptp(b[both]) == 0:
        return float("nan")
    return float(kendalltau(a[both], b[both]).statistic)


def agreement_by_rounds(
    sums: np.ndarray, examples: np.ndarray, central: np.ndarray, clients_per_round: int
) -> list[float]:
    """Agreement with the central ranking after each round of clients: Kendall's tau (Fig. 6, left).

    Args:
        sums: As for :func:`mean_scores`, clients in the order in which they were drawn.
        examples: As there.
        central: Scores of the central ranking, [paths].
        clients_per_round: Clients of a round.

    Returns:
        tau of the first round's clients, of the first two rounds', and so on.

    """
    ends = range(clients_per_round, len(sums) + clients_per_round, clients_per_round)
    return [kendall_tau(mean_scores(sums[:end], examples[:end]), central) for end in ends]
