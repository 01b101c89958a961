"""FedTrans's hyperparameters, with the paper's symbols and defaults (section 5.1, Table 7)."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fedscale_ext.config.job_config import JobConfig
from fedscale_ext.data.registry import canonical
from fedscale_ext.util.ranges import CountOrZero, Fraction, NotNegative, Range

# Table 7: delta by data set; a data set that the paper does not have takes FEMNIST's
_DELTA = {"cifar10": 20, "femnist": 30, "speech": 100, "openimage": 50}

_ROUNDS = 1_000_000  # more than any job has
_CELLS = 64  # that are inserted behind one; the paper tries up to 3
_WIDEST = 64  # times as many channels; the paper tries up to 3


@dataclass(frozen=True)
class FedTransParams:
    """Hyperparameters of FedTrans, under the paper's symbols.

    The newest model has a child when its degree of convergence (DoC, Eq. 1) is ``beta`` or less. DoC takes ``gamma``
    slopes of ``delta`` rounds each, so that a model trains gamma + delta rounds before it has a child. With gamma 2,
    delta 2 and beta 1, a job of ten rounds shows growth.

    Letters in brackets, as [s], are the ablations of Table 3.

    Attributes:
        alpha: Activeness threshold, as a share of the highest activeness: cells at or above it grow.
        beta: Threshold of the degree of convergence (how much the training loss falls a round, Eq. 1). At or below it,
            the newest model has a child.
        gamma: Number of slopes of the loss in the degree of convergence (Eq. 1).
        delta: Rounds of each slope. The default depends on the data set (Table 7): 20 for CIFAR-10, 50 for OpenImage,
            100 for Speech Commands, else 30.
        T: Last rounds over which activeness is averaged.
        eta: Decay of the sharing per round (eta^t in Eq. 5).
        widen_factor: Factor by which a cell that grows becomes wider.
        deepen_count: Cells that are inserted after a cell that becomes deeper.
        transform_policy: ``alternate`` widens and deepens in turn. The others do only one of them.
        widen: ``cell`` widens a block with a shortcut between its ends. ``block`` (of ResNets) also widens what it
            writes, with projections where shortcuts need them.
        symmetry: Division of a widened channel's columns among its replicas: by random shares, equally, or equally with
            noise.
        cell_selection: ``activeness`` grows the most active cells. ``random`` is [l].
        warmup: ``on`` lets a child inherit its parent's weights. ``reinit`` draws new ones: [w].
        doc_loss: Whose losses the degree of convergence takes: those of the newest model's participants, or of all.
        cap_quantile: Quantile of the devices' capacities that a child must fit.
        sharing: ``soft`` shares weights between models (Eq. 5). ``none`` is [s].
        decay: ``on`` lets the sharing decay by ``eta``. ``off`` is [d].
        decay_clock: ``global`` counts rounds since the start (the text's "round t"). ``age`` counts them since the
            model's birth.
        similarity: ``lineage`` weighs models by their common cells. ``one`` weighs all alike in Eq. 5; in Eq. 4 it
            would end the choice of models.
        sim_reduce: ``mean`` averages the similarities of cells. ``sum`` adds them up.
        normalise: ``decayed`` divides by the decayed weights. ``literal`` is Eq. 5 as printed.
        align: ``lift`` puts older models through the recorded transformations. ``prefix`` lays them on the leading
            part.
        l2s: Large models also give weights to smaller ones (Table 1).
        utility: ``literal`` is Eq. 4. ``client_history`` also standardises losses over a client's earlier ones, so that
            utilities rate models and not how hard the samples are.
        ties: Which model a client gets among those of equal utility.
        serve_min_rounds: Rounds that a model trains before it is served. With 0, it is served from its birth on, with
            inherited weights.
        stop: ``rounds`` trains all rounds. ``accuracy`` stops by ``stop_gain`` (Appendix A.1). ``converged`` stops when
            no model can grow and all have converged (section 3).
        stop_rounds: Rounds over which ``stop: accuracy`` compares.
        stop_gain: Rise of the clients' mean test accuracy (0 to 1) at or below which ``stop: accuracy`` ends the job.
        server_opt: Server optimizer that FedTrans is composed with (Fig. 8). FedScale's yogi_* keys are its constants.
        prox_mu: Weight of FedProx's term at the clients (Fig. 8). With 0, there is none.

    """

    alpha: Fraction = 0.9
    beta: Annotated[float, Range()] = 0.003
    gamma: Annotated[int, Range(1, _ROUNDS)] = 10
    delta: Annotated[int, Range(1, _ROUNDS)] = 30
    T: Annotated[int, Range(1, _ROUNDS)] = 5
    eta: Fraction = 0.98
    widen_factor: Annotated[float, Range(above=1, most=_WIDEST)] = 2.0
    deepen_count: Annotated[int, Range(1, _CELLS)] = 1
    transform_policy: Literal["alternate", "widen_only", "deepen_only"] = "alternate"
    widen: Literal["cell", "block"] = "cell"
    symmetry: Literal["random_split", "equal", "equal+noise"] = "random_split"
    cell_selection: Literal["activeness", "random"] = "activeness"
    warmup: Literal["on", "reinit"] = "on"
    doc_loss: Literal["newest", "all"] = "newest"
    cap_quantile: Fraction = 1.0
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
    serve_min_rounds: CountOrZero = 0
    stop: Literal["rounds", "accuracy", "converged"] = "rounds"
    stop_rounds: Annotated[int, Range(1, _ROUNDS)] = 10
    stop_gain: NotNegative = 0.01
    server_opt: Literal["avg", "yogi", "adam"] = "avg"
    prox_mu: NotNegative = 0.0

    @staticmethod
    def job_defaults(config: JobConfig) -> dict[str, Any]:
        """Choose delta by the data set (Table 7)."""
        return {"delta": _DELTA.get(canonical(config.fedscale.data_set), 30)}
