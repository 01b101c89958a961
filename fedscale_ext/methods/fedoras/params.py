"""FedorAS's hyperparameters, with the paper's defaults (sections 3 and 4)."""

from dataclasses import dataclass
from typing import Annotated, Literal

from fedscale_ext.core.errors import UserError
from fedscale_ext.methods.fedoras.search import SearchSettings
from fedscale_ext.util.ranges import Count, CountOrNone, Decay, Part, Positive, Range, Share, check_ranges


@dataclass(frozen=True)
class FedorASParams:
    """Keys ``fedoras.<name>``.

    Tiers: ``brackets`` are the most MMACs of a path in each tier, smallest tier first, counted as the paper counts them
    (normalisation, activations and pooling too); none: those of the space (the printed ones where it has some, else
    from random paths), or of so many ``tiers``. ``allocation``: shares ranks devices by the MACs that they afford and
    deals ``shares`` of the clients (none: the space's own), weakest first; random deals them whatever the device (the
    public code); capacity puts each device into the highest tier whose budget it affords: the slowest of
    FedScale's devices affords the cheapest path and the fastest is thirteen times as fast, while printed budgets are 6
    to 38 times that path, so that tiers may stay empty, and such a job does not start. ``unsupported`` names the
    operators that the devices of each tier cannot run, a list per tier. ``upper_only``: a tier's model may be smaller
    than its bracket (Equation 6).

    Supernet training (section 3.1), of ``supernet_rounds``: ``subspace`` is what of the supernet's bytes a client is
    sent at most (Eq. 1), drawn for each ``client``, or once for all clients of a ``round``. ``dynamic_budget`` is the
    share of its budget that a device's own work may take, at random, from each batch; 0 leaves budgets as they are.
    ``idle_gradient`` is the gradient of an operator that a batch's path leaves out, after its first path in a client's
    round: zero, so that momentum and weight decay keep moving it (the public code); none: it rests.
    ``val_ratio`` of each client's training samples is held out for the search.

    ``aggregation``: opa weighs each operator by the examples that went through it (Eq. 5), fedavg whole clients by the
    examples that they trained on, plain all clients alike. ``mean_over``: fedavg and plain average over all
    participants of the round, those that were not sent an operator with its unchanged weights (FedAvg of full models,
    section 3.1), or over the holders of each operator. Operators that fewer than ``opa_min_clients`` trained stay as
    they are. ``opa_scope`` buffers_only does as the public code, which averages operators' weights as fedavg does.

    Search (sections 3.2 and 4.7), in the round after: nsga2 or random paths, of which ``evaluations`` are judged for
    each tier (one number, or one per tier), by ``score`` (loss: its negative). ``evaluation``: central, on the
    validation samples of all clients, of which ``val_fraction`` counts; federated, each generation by
    ``evaluation_rounds`` times ``num_participants`` clients on their own. ``recalibrate``: BatchNorm's statistics are
    measured for each path before. ``compare_rankings``: in a federated search, the server also judges each generation
    on all validation samples together, which decides nothing, and tells Kendall's tau after each round of clients
    (Fig. 6). ``population``: how many random paths NSGA-II begins with; ``parents``: how many of the best it keeps from
    generation to generation, and how many new ones it makes of them (random search judges as many at a time);
    ``mutation``: the probability with which an operator of a new path is drawn at random. ``objectives`` 2: good are
    paths of a high score or of few MACs (NSGA-II's two aims; the model is the one with the best score); 1: the score
    alone counts (the public code). ``target``: a score at which a tier's search ends before its ``evaluations`` are
    used up (none: it does not). The defaults are the paper's for CIFAR-10; the configurations named ``_small`` have
    smaller numbers, 32 paths to begin with, 16 parents and 48 or 64 evaluations.

    Fine-tuning (section 3.3): ``finetune_rounds`` for each tier in turn, of ``finetune_clients`` (none:
    ``num_participants``) of that tier and above, ``finetune_epochs`` in batches of ``finetune_batch``; the learning
    rate falls from ``finetune_lr`` by ``finetune_schedule``: cosine, to its share ``finetune_lr_end``; steps, by that
    factor at half and again at three quarters of the rounds; none: steps on text, else cosine (the public code).
    ``finetune_augment`` none: flip_crop where the job's ``augment`` is rand_flip_crop, else as the job's.
    ``twin_rounds`` (the paper: 500) for each tier come after: the same model from random weights, trained as in
    fine-tuning, but in ``twin_epochs`` and ``twin_batch`` (none: fine-tuning's) by ``num_participants``, and from
    ``twin_lr`` (none: the job's ``learning_rate``) to its share ``twin_lr_end``; by the clients who fine-tune it, or by
    all, whatever they afford (``twin_clients`` all; Fig. 1's tier-unaware training). A job has
    supernet_rounds + 1 + tiers x (finetune_rounds + twin_rounds) ``rounds``; one with fewer ends before, one with more
    ends when all is done.
    """

    brackets: tuple[float, ...] = ()
    tiers: Count | None = None
    allocation: Literal["shares", "random", "capacity"] = "shares"
    shares: tuple[float, ...] | None = None
    unsupported: tuple[tuple[str, ...], ...] = ()
    upper_only: bool = False
    supernet_rounds: Count = 500
    subspace: Part = 0.5
    subspace_per: Literal["client", "round"] = "client"
    dynamic_budget: Decay = 0.0
    idle_gradient: Literal["zero", "none"] = "zero"
    val_ratio: Decay = 0.1
    aggregation: Literal["opa", "fedavg", "plain"] = "opa"
    mean_over: Literal["participants", "holders"] = "participants"
    opa_min_clients: Count = 2
    opa_scope: Literal["all", "buffers_only"] = "all"
    search: Literal["nsga2", "random"] = "nsga2"
    evaluation: Literal["central", "federated"] = "central"
    evaluations: Count | tuple[int, ...] = 1000
    population: Annotated[int, Range(2)] = 128
    parents: Annotated[int, Range(2)] = 64
    mutation: Share = 0.1
    objectives: Literal[1, 2] = 2
    target: Annotated[float, Range()] | None = None
    score: Literal["accuracy", "loss"] = "accuracy"
    val_fraction: Part = 1.0
    evaluation_rounds: Count = 4
    compare_rankings: bool = False
    recalibrate: bool = False
    finetune_rounds: CountOrNone = 100
    finetune_clients: Count | None = None
    finetune_epochs: Count = 1
    finetune_batch: Count = 32
    finetune_lr: Positive = 0.01
    finetune_lr_end: Part = 0.1
    finetune_schedule: Literal["cosine", "steps"] | None = None
    finetune_augment: Literal["none", "flip", "flip_crop", "rand_flip_crop"] | None = None
    twin_rounds: CountOrNone = 0
    twin_epochs: Count | None = None
    twin_batch: Count | None = None
    twin_lr: Positive | None = None
    twin_lr_end: Part = 0.1
    twin_clients: Literal["eligible", "all"] = "eligible"

    def __post_init__(self) -> None:
        check_ranges(self, "fedoras")
        if self.brackets and not all(a < b for a, b in zip((0.0, *self.brackets), self.brackets, strict=False)):
            raise UserError(f"fedoras.brackets is {list(self.brackets)}; it must hold rising MMACs, all above 0")
        if self.brackets and self.tiers is not None and len(self.brackets) != self.tiers:
            raise UserError(
                f"fedoras.brackets are of {len(self.brackets)} tiers and fedoras.tiers is {self.tiers}; leave one out"
            )
        if self.shares is not None and not (self.shares and min(self.shares) > 0):
            raise UserError(f"fedoras.shares is {list(self.shares)}; it must hold a share above 0 for each tier")
        if self.shares is not None and self.allocation == "capacity":
            raise UserError(
                "fedoras.shares is given and fedoras.allocation is capacity, which looks at devices alone; set "
                "fedoras.allocation to shares or random, or remove fedoras.shares"
            )
        if self.compare_rankings and self.evaluation == "central":
            raise UserError(
                "fedoras.compare_rankings compares a federated search with a central one: set fedoras.evaluation to "
                "federated, or remove it"
            )
        self.searches(1 if isinstance(self.evaluations, int) else len(self.evaluations))

    def searches(self, tiers: int) -> list[SearchSettings]:
        """The settings of each tier's search; UserError where there are evaluations for another number of tiers."""
        each = (self.evaluations,) * tiers if isinstance(self.evaluations, int) else self.evaluations
        if len(each) != tiers:
            raise UserError(f"fedoras.evaluations has {len(each)} numbers; there are {tiers} tiers")
        settings = self.search, self.population, self.parents, self.mutation, self.objectives, self.target
        return [SearchSettings(settings[0], number, *settings[1:]) for number in each]
