"""FedTrans's hyperparameters, with the paper's symbols and defaults (section 5.1, Table 7)."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fedscale_ext.config.job_config import JobConfig
from fedscale_ext.util.ranges import CountOrNone, NotNegative, Range, Share, check_ranges

# Table 7: delta by data set; a data set that the paper does not have takes FEMNIST's
_DELTA = {"cifar10": 20, "femnist": 30, "google_speech": 100, "openImg": 50}

_ROUNDS = 1_000_000  # more than any job has
_CELLS = 64  # that are inserted behind one; the paper tries up to 3
_WIDEST = 64  # times as many channels; the paper tries up to 3


@dataclass(frozen=True)
class FedTransParams:
    """Keys ``fedtrans.<name>``. The switches in brackets are the ablations of Table 3.

    Growing: the newest model has a child when its degree of convergence (DoC, Eq 1: how much its training
    loss falls a round) is ``beta`` or less. It is told by ``gamma`` slopes of ``delta`` rounds each: not before
    the model has trained gamma + delta rounds. In ten rounds, gamma 2, delta 2 and beta 1 show it.
    ``alpha`` activeness threshold of the cells that grow; ``T`` rounds of activeness averaged;
    ``widen_factor``, ``deepen_count``; ``transform_policy``; ``widen`` cell widens a block with a shortcut between its
    ends, block (of ResNets) also what it writes, with projections where shortcuts need them; ``symmetry`` of
    replicas; ``cell_selection`` random is [l]; ``warmup`` reinit is [w]; ``doc_loss`` of the newest model's
    participants or of all; ``cap_quantile`` of the capacities that a child must fit.

    Sharing: ``sharing`` none is [s]; ``eta`` decay per round, ``decay`` off is [d]; ``decay_clock`` counts
    rounds since the start (the text's "round t") or since the model's birth; ``similarity`` one weighs all
    models alike in Eq 5 (in Eq 4 it would move all utilities alike and end the choice of models);
    ``sim_reduce`` cumulates per-cell similarities; ``normalise`` literal is Eq 5 as printed; ``align`` lifts older
    models through the recorded transformations or lays them on the leading part; ``l2s`` also shares from large
    to small models (Table 1).

    Choosing: ``utility`` literal is Eq 4; client_history standardises a client's losses over its own so far, too, so
    that its utilities tell of models and not of how hard its samples are.

    Serving: ``ties`` between equal utilities; ``serve_min_rounds`` trained rounds before a model is served (0:
    from its birth on, with what it inherits). Stopping: ``stop`` accuracy ends when the mean client accuracy
    did not rise by more than ``stop_gain`` over ``stop_rounds`` rounds (appendix), converged when no model can
    grow and all have converged (section 3). Composed (Fig 8): ``server_opt`` with FedScale's yogi_* keys as its
    constants; ``prox_mu`` above 0 gives the clients FedProx's term.
    """

    alpha: Share = 0.9
    beta: Annotated[float, Range()] = 0.003
    gamma: Annotated[int, Range(1, _ROUNDS)] = 10
    delta: Annotated[int, Range(1, _ROUNDS)] = 30
    T: Annotated[int, Range(1, _ROUNDS)] = 5
    eta: Share = 0.98
    widen_factor: Annotated[float, Range(above=1, most=_WIDEST)] = 2.0
    deepen_count: Annotated[int, Range(1, _CELLS)] = 1
    transform_policy: Literal["alternate", "widen_only", "deepen_only"] = "alternate"
    widen: Literal["cell", "block"] = "cell"
    symmetry: Literal["random_split", "equal", "equal+noise"] = "random_split"
    cell_selection: Literal["activeness", "random"] = "activeness"
    warmup: Literal["on", "reinit"] = "on"
    doc_loss: Literal["newest", "all"] = "newest"
    cap_quantile: Share = 1.0
    sharing: Literal["soft", "none"] = "soft"
    decay: Literal["on", "off"] = "on"
    decay_clock: Literal["global", "age"] = "global"
    similarity: Literal["lineage", "one"] = "lineage"
    sim_reduce: Literal["mean", "sum"] = "mean"
    normalise: Literal["decayed", "literal"] = "decayed"
    align: Literal["lift", "prefix"] = "lift"
    l2s: bool = False
    utility: Literal["literal", "client_history"] = "literal"
    ties: Literal["largest", "smallest"] = "largest"
    serve_min_rounds: CountOrNone = 0
    stop: Literal["rounds", "accuracy", "converged"] = "rounds"
    stop_rounds: Annotated[int, Range(1, _ROUNDS)] = 10
    stop_gain: NotNegative = 0.01
    server_opt: Literal["avg", "yogi", "adam"] = "avg"
    prox_mu: NotNegative = 0.0

    def __post_init__(self) -> None:
        check_ranges(self, "fedtrans")

    @staticmethod
    def job_defaults(config: JobConfig) -> dict[str, Any]:
        """Choose delta by the data set (Table 7)."""
        return {"delta": _DELTA.get(config.fedscale.data_set, 30)}
