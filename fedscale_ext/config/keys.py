"""The configuration keys that this package adds to FedScale's, in one place."""

import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, model_validator
from pydantic_core import PydanticCustomError

from fedscale_ext.core.shapes import parse_sides

RESAMPLED = "resampled"  # in place of a file of devices: rows drawn from FedScale's published marginals
_COHORT_SIZE = "auto, or a whole number from 1"
_SAMPLE_SHAPE = "channels x height x width, as 3x64x64"
_SHAPE_OR_NONE = f"{_SAMPLE_SHAPE}, or null"


def _cohort_size(value: Any) -> int | str:
    if value == "auto" or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
        return value
    if isinstance(value, str) and value.isdecimal() and int(value) >= 1:
        return int(value)
    raise PydanticCustomError("cohort_size", f"it should be {_COHORT_SIZE}")


def _sample_shape(value: Any) -> tuple[int, int, int] | None:
    if value is None:
        return None
    sides = parse_sides(value)
    if sides is not None and len(sides) == 3:
        return sides[0], sides[1], sides[2]
    raise PydanticCustomError("sample_shape", f"it should be {_SAMPLE_SHAPE}")


class JobKeys(BaseModel):
    """New ``job_conf`` keys. A method's own hyperparameters are ``<method>.<name>`` keys beside them.

    FedScale's keys keep their names, meaning and defaults (``fedscale.cloud.config_parser``), but
    for ``device_conf_file``, whose default here is ``resampled``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=(), allow_inf_nan=False)

    method: str = Field("fedavg", description="method that trains: `fedscale methods` lists them")
    seed: int = Field(1, ge=0, lt=2**63, description="seed of every random draw of the job but those of `data_seed`")
    data_seed: int = Field(
        1,
        ge=0,
        lt=2**63,
        description="seed that decides which samples are held out for tests where the data have no test.csv, and which "
        "are public: jobs of several `seed`s have the same data",
    )
    capacity_rule: Literal["deadline", "computation"] = Field(
        "deadline",
        description="how a device's speed bounds the MACs of its model: `deadline`, what it trains and sends within "
        "`deadline_s` by FedScale's formula; `computation`, in proportion to its speed alone, the slowest affording "
        "`capacity_model`",
    )
    device_match: Literal["auto", "client_id", "order"] = Field(
        "auto",
        description="how clients get rows of `device_conf_file` and `device_avail_file`: `client_id`, the row of "
        "their name; `order`, client i has row i; `auto`, by name where all clients are named, by order where the ids "
        "are numbers that name none or merely number the rows, else an error",
    )
    groups_by: Literal["capacity", "main_class"] = Field(
        "capacity",
        description="in which order a method's `groups` take clients, the smallest type first: the weakest devices "
        "first, or by the number of the class of which a client has most training samples, so that each type has data "
        "of its own kind",
    )
    reference_macs: float = Field(
        3.0e8, gt=0, description="forward MACs of the model that the trace's ms/sample were measured with"
    )
    deadline_s: float | None = Field(
        None,
        gt=0,
        description="deadline of rule `deadline`; default: the weakest client's time for the base. It bounds MACs, at "
        "the smallest model's bytes per MAC: a notice tells of clients that take longer",
    )
    capacity_model: str | None = Field(
        None,
        description="model that the weakest device affords, a name or spec file; default: `model`, or its narrowest "
        "version where the method makes narrower ones. A baseline that is given a large `model` names the small one "
        "here, so that its devices are those of the job beside it",
    )
    initial_weights: str | None = Field(
        None,
        description="file with the weights that training starts from, `models/KEY.safetensors` of a finished job whose "
        "`models/KEY.json` is the `model`; for methods that start from one model, as FedAvg and FedTrans do; "
        "default: random ones",
    )
    capacity_spread: float = Field(32.0, ge=1, description="largest ratio of two capacities under rule `computation`")
    test_split: float = Field(
        0.2, ge=0, lt=1, description="share of a client's samples held out where the data has no test.csv"
    )
    sample_shape: Annotated[tuple[int, int, int] | None, PlainValidator(_sample_shape), _SHAPE_OR_NONE] = Field(
        None,
        description="shape that pictures are resized to, or that values are put into in their order (UCI HAR: "
        "9x1x128); default: the data set's",
    )
    public_samples: int = Field(
        0,
        ge=0,
        description="samples that the server alone holds, for methods that distil: taken from the clients' training "
        "samples by `data_seed`, at most half of a client's, or from `public_dir`",
    )
    public_dir: str | None = Field(
        None,
        description="folder of another data set in FedScale's layout that public samples are taken from; its classes "
        "may be others than the clients'. Pictures are resized to the clients' shape, colours becoming grey where that "
        "has one channel; other values are given that shape where it has as many numbers",
    )
    public_fraction: float = Field(
        1.0, gt=0, le=1, description="share of the public samples that is used; the clients' samples stay the same"
    )
    public_classes: Literal["balanced", "dirichlet"] = Field(
        "balanced",
        description="public samples: as many of each class, or in proportions from Dirichlet(`public_alpha`)",
    )
    public_alpha: float = Field(
        0.1, gt=0, description="concentration of these proportions: a small one gives few classes"
    )
    augment: Literal["none", "flip", "flip_crop", "rand_flip_crop", "speech"] = Field(
        "none",
        description="how pictures are changed at random in training: flipped left to right (FedScale's OpenImage), or "
        "also shifted by up to 4 pixels (its CIFAR), or also changed by RandAugment(2, 9) (FedorAS's CIFAR); tests see "
        "them as they are. speech: features are moved by up to 100 ms and mixed with what the data have of the class "
        "silence (FedorAS's Speech Commands)",
    )
    unit_size: int = Field(
        16, ge=1, description="about how many clients are handed to an executor at once; a whole cohort at least"
    )
    cohort_size: Annotated[int | str, PlainValidator(_cohort_size), _COHORT_SIZE] = Field(
        "auto",
        description="most clients of one model that train side by side; 1: one by one; auto: what is measured fastest "
        "on this machine. Sizes differ in rounding: a number gives the same result everywhere",
    )
    precision: Literal["float32", "bfloat16"] = Field(
        "float32", description="of the clients' forward passes; bfloat16 by autocast, weights stay float32"
    )
    local_epochs: int | None = Field(
        None,
        ge=1,
        description="passes of a client over its samples in a round, in batches of `batch_size` and a last one of what "
        "is left, instead of `local_steps`; its time on the virtual clock and its capacity follow from its samples",
    )
    client_optimizer: Literal["sgd", "adam"] = Field("sgd", description="optimiser of the clients' steps")
    client_momentum: float = Field(0.9, ge=0, lt=1, description="momentum of the clients' SGD")
    client_weight_decay: float = Field(
        5e-4, ge=0, description="weight decay of the clients' optimiser: L2, under Adam as torch.optim.Adam has it"
    )
    adam_beta1: float = Field(0.9, ge=0, lt=1, description="decay of the mean of gradients under `adam`")
    adam_beta2: float = Field(0.999, ge=0, lt=1, description="decay of the mean of squared gradients under `adam`")
    adam_eps: float = Field(1e-8, gt=0, description="added to the root of the latter under `adam`")
    prox_mu: float = Field(
        0.0, ge=0, description="FedProx term added to the objective of any method but fedprox, which has `fedprox.mu`"
    )
    control_variates: bool = Field(
        False,
        description="SCAFFOLD (Karimireddy et al. 2020, option II) with any method whose clients step by SGD: the "
        "server's control variate less the client's own corrects each gradient. The aggregator keeps the clients' in "
        "files of the job's folder; they count as traffic in both directions",
    )
    own_classes: bool = Field(
        False,
        description="clients learn the classes only that they have: logits of others are zero in the loss, and in a "
        "class's rows of the classifier those count who have it (HeteroFL's masked cross-entropy)",
    )
    mask_test: bool = Field(
        False,
        description="clients are tested with the logits of classes that they have no training samples of set to zero, "
        "as HeteroFL's public code tests them; the accuracy without this mask stands beside. Global models, and "
        "`test_on_all`, are never masked",
    )
    bn_statistics: Literal["auto", "running", "federated"] = Field(
        "auto",
        description="BatchNorm's statistics when models are tested: the running ones of training, or measured anew in "
        "a pass over clients' training data (of a network that is a client's own: over its own); auto: as the method "
        "has it",
    )
    bn_statistics_clients: int = Field(
        100,
        ge=1,
        description="most clients whose data such a pass takes, of those that can compute the model or are served it",
    )
    personalise_epochs: int = Field(
        0,
        ge=0,
        description="at the end of the job, each client also fine-tunes a copy of what it is served on its own "
        "training samples for so many epochs, and its accuracy with that is told beside; 0: off",
    )
    test_on_all: bool = Field(
        False,
        description="at the end of the job, the model of each client is also tested on the test samples of all "
        "clients; one that only this client has, too, which takes a pass through them for each client",
    )
    test_around_training: bool = Field(
        False,
        description="at the end of the job, each client also does one more round as far as its local training, and its "
        "model is tested before and after that training; for methods whose devices have types or levels",
    )
    pacer_rule: Literal["falls", "flat"] = Field(
        "falls",
        description="when Oort's pacer raises `round_threshold` by `pacer_delta`: where exploited clients' utility "
        "was higher in the `pacer_step` rounds before (its paper), or where it was the same within a tenth (FedScale, "
        "which lowers it where it changed fivefold)",
    )
    pyramidfl_utility: Literal["gradient", "loss"] = Field(
        "gradient",
        description="by which utility `sample_mode: pyramidfl` chooses: norm of a client's last update times its "
        "samples, or Oort's by losses, as its public code; who drops how much is by the former in any case",
    )
    pyramidfl_epoch_beta: float = Field(
        1.0, ge=0, description="how much of the time that a client would wait for the slowest it trains on; 0: none"
    )
    pyramidfl_dropout_low: float = Field(
        0.1, ge=0, le=1, description="share of its update's tensors that the client of highest utility leaves out"
    )
    pyramidfl_dropout_high: float = Field(
        0.6, ge=0, le=1, description="... and that of lowest utility; 0 for both: nobody leaves anything out"
    )
    stop_gain: float | None = Field(
        None,
        ge=0,
        description="the job of any method ends where the clients' best mean accuracy (0 to 1) of the last "
        "`stop_patience` is no more than this above the best before; FedTrans's appendix has 0.01. Default: after "
        "`rounds` alone",
    )
    stop_patience: int = Field(10, ge=1, description="... over so many rounds, or evaluations")
    stop_unit: Literal["rounds", "evaluations"] = Field(
        "rounds", description="... what `stop_patience` counts; accuracies are those of evaluations in any case"
    )
    clip_norm: float | None = Field(None, gt=0, description="gradient clipping norm of the clients")
    max_update_norm: float | None = Field(
        None, gt=0, description="largest norm of a client's change of its model; longer ones are refused and counted"
    )
    dp_noise_multiplier: float | None = Field(
        None, gt=0, description="turns on [differential privacy](privacy.md) of clients: noise per clipping norm"
    )
    dp_round_epsilon: float | None = Field(
        None,
        gt=0,
        le=1,
        description="sets `dp_noise_multiplier` to sqrt(2 ln(1.25 / dp_delta)) over this, with which one round alone "
        "has this epsilon (Dwork and Roth's Gaussian mechanism; NbAFL, Moss): rounds are not composed in it",
    )
    dp_clip_norm: float = Field(
        1.0, gt=0, description="L2 norm that a client's change is clipped to; the first one where it adapts"
    )
    dp_target_quantile: float | None = Field(
        None, gt=0, lt=1, description="the clipping norm follows this quantile of the changes' norms; default: it stays"
    )
    dp_delta: float = Field(1e-5, gt=0, lt=1, description="delta at which epsilon is told; below 1 / clients")
    dp_epsilon: float | None = Field(
        None, gt=0, description="the job ends before a round that would exceed this epsilon"
    )
    dp_accounting: Literal["sampling", "participation"] = Field(
        "sampling",
        description="what epsilon rests on: each client takes part by a secret coin of its own, or the "
        "rounds in which it took part are counted, whoever knows them",
    )
    dp_noise: Literal["seeded", "secret"] = Field(
        "seeded",
        description="noise and coins from `seed`, so that whoever knows it can take them away, or from a "
        "secret of the operating system, so that the job cannot be repeated",
    )
    record_internals: bool = Field(
        False,
        description="write what the method's equations used in each round, and weights in the last `checkpoint_keep`",
    )
    checkpoint_interval: int = Field(1, ge=1, description="rounds from one checkpoint to the next")
    checkpoint_keep: int = Field(3, ge=1, description="how many of the last checkpoints are kept")
    resume: bool = Field(False, description="continue from the last checkpoint of the same time_stamp")
    resume_from: int | None = Field(None, ge=1, description="continue from the checkpoint of this round instead")
    unit_timeout_s: float = Field(600.0, gt=0, description="longest wait for the next finished work unit")
    register_timeout_s: float = Field(120.0, gt=0, description="longest wait for all executors to register")
    lease_s: float = Field(
        30.0, ge=0.5, description="an executor that gave no sign of life for so long is lost; its work goes to others"
    )
    replacement_s: float = Field(
        120.0, ge=0, description="longest wait for an executor to come back or be replaced when none is left"
    )
    reconnect_s: float = Field(
        60.0, ge=0, description="longest that an executor tries to reach an aggregator that does not answer"
    )
    unit_tries: int = Field(
        2, ge=1, description="a work unit that failed so often, or whose executor died, is dropped; its clients failed"
    )
    min_updates: int | None = Field(
        None,
        ge=1,
        description="updates with which a round may close when executors fail; fewer end the job. Default: the round "
        "waits for every planned update, and one that succeeded is enough",
    )
    max_message_mb: int = Field(256, ge=1, le=2047, description="largest message, in either direction")
    token_file: str | None = Field(
        None,
        description="file of mode 600 with 64 hexadecimal digits that sign every message; `fedscale driver` makes one "
        "for each start",
    )
    message_window_s: float = Field(
        120.0, gt=0, le=86400, description="most that the clocks of two machines, and a message's way, may differ"
    )
    tls_ca: str | None = Field(
        None, description="PEM file of the authority that signed the certificates of both sides; turns TLS on"
    )
    tls_aggregator_cert: str | None = Field(None, description="PEM file of a certificate for ps_ip")
    tls_aggregator_key: str | None = Field(None, description="PEM file of its key, without a password")
    tls_executor_cert: str | None = Field(None, description="PEM file of the executors' certificate")
    tls_executor_key: str | None = Field(None, description="PEM file of its key, without a password")

    @model_validator(mode="before")
    @classmethod
    def _noise_of_a_round(cls, keys: Any) -> Any:
        if keys.get("dp_round_epsilon") is None:
            return keys
        try:  # words, where a command line has them
            epsilon, delta = float(keys["dp_round_epsilon"]), float(keys.get("dp_delta", 1e-5))
        except (TypeError, ValueError):
            return keys  # their own checks tell
        if not (0 < epsilon <= 1 and 0 < delta < 1):
            return keys
        if keys.get("dp_noise_multiplier") is not None:
            raise PydanticCustomError("noise", "it sets dp_noise_multiplier, which is given too")
        return {**keys, "dp_noise_multiplier": math.sqrt(2 * math.log(1.25 / delta)) / epsilon}

    @property
    def resumes(self) -> bool:
        """Whether the job continues from a checkpoint."""
        return self.resume or self.resume_from is not None
