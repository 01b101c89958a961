"""The configuration keys that this package adds to FedScale's, in one place."""

import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from fedscale_ext.config.key_values import SHAPE_OR_NONE, SIZE, read_sample_shape, read_size

RESAMPLED = "resampled"  # in place of a file of devices: rows drawn from FedScale's published marginals


class JobKeys(BaseModel):
    """New ``job_conf`` keys. A method's own hyperparameters are ``<method>.<name>`` keys beside them.

    FedScale's keys keep their names, meaning and defaults (``fedscale.cloud.config_parser``), but
    for ``device_conf_file``, whose default here is ``resampled``.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=(), allow_inf_nan=False)

    method: str = Field("fedavg", description="Method that trains. `fedscale methods` lists them.")
    seed: int = Field(
        1, ge=0, lt=2**63, description="Seed of every random draw of the job, except those of `data_seed`."
    )
    data_seed: int = Field(
        1,
        ge=0,
        lt=2**63,
        description="Seed that chooses public samples, and test samples if the data has no test.csv. Jobs of several "
        "`seed`s have the same data.",
    )
    capacity_rule: Literal["deadline", "computation"] = Field(
        "deadline",
        description="How a device's speed bounds the MACs of its model. `deadline`: what it trains and sends within "
        "`deadline_s` by FedScale's formula. `computation`: in proportion to its speed only; the slowest "
        "affords `capacity_model`.",
    )
    device_match: Literal["auto", "client_id", "order"] = Field(
        "auto",
        description="How clients get rows of `device_conf_file` and `device_avail_file`. `client_id`: the row of "
        "their name. `order`: client i has row i. `auto`: by name if all clients are named. Otherwise, by "
        "order if ids are numbers that name no client, or that only count enough rows. Else it is an error.",
    )
    groups_by: Literal["capacity", "main_class"] = Field(
        "capacity",
        description="Order in which a method's `groups` take clients, smallest type first. `capacity`: the weakest "
        "devices first. `main_class`: by the class of which a client has most training samples, so that "
        "each type has data of its own kind.",
    )
    reference_macs: float = Field(
        3.0e8,
        gt=0,
        description="Forward MACs per sample of the model that the trace's ms per sample were measured with.",
    )
    deadline_s: float | None = Field(
        None,
        gt=0,
        description="Deadline in seconds of `capacity_rule: deadline`. By default, it is the weakest client's time "
        "for `capacity_model`. Unless you set that key, traffic is the method's own. The deadline bounds MACs, at the "
        "smallest model's bytes per MAC. If you give one, a notice tells of clients that take longer. It is "
        "refused if a client could not even train the smallest model in it.",
    )
    capacity_model: str | None = Field(
        None,
        description="Model that the weakest device affords, a name or spec file. By default, it is the smallest "
        "that the method trains: `model`, its narrowest version, the smallest type, or what a search's page says. "
        "A baseline with a large `model` names the small one here: its devices are then those of the job beside "
        "it. If you set it, each device's time counts the exchange of all of this model, whatever the method sends.",
    )
    initial_weights: str | None = Field(
        None,
        description="Weights that training starts from: `models/KEY.safetensors` of a finished job whose "
        "`models/KEY.json` is the `model`, or [pretrained ones](adding-a-model.md#pretrained-weights): another file, "
        "`torchvision:NAME` or `hf:OWNER/NAME`. Methods that start from one model take it, as FedAvg and "
        "FedTrans do. By default, weights are random.",
    )
    capacity_spread: float = Field(
        32.0, ge=1, description="Largest ratio of two capacities under `capacity_rule: computation`."
    )
    test_split: float = Field(
        0.2,
        ge=0,
        lt=1,
        description="Share of each client's samples that is held out for tests if the data has no test.csv.",
    )
    sample_shape: Annotated[tuple[int, int, int] | None, PlainValidator(read_sample_shape), SHAPE_OR_NONE] = Field(
        None,
        description="Shape that pictures are resized to, or that values are put into in their order (UCI HAR: "
        "9x1x128). By default, it is the data set's.",
    )
    public_samples: int = Field(
        0,
        ge=0,
        description="Number of samples that are set aside for methods that distil. They come from `public_dir`, or "
        "from the clients' training samples by `data_seed`: at most half of a client's.",
    )
    public_dir: str | None = Field(
        None,
        description="Folder of another data set, in FedScale's layout, that public samples come from. Its classes can "
        "differ from the clients'. Pictures get the clients' shape, and become grey if that has one "
        "channel. Other values get that shape if they are as many numbers.",
    )
    public_fraction: float = Field(
        1.0, gt=0, le=1, description="Share of the public samples that is used. The clients' samples stay the same."
    )
    public_classes: Literal["balanced", "dirichlet"] = Field(
        "balanced",
        description="Classes of the public samples: as many of each, or in proportions from Dirichlet(`public_alpha`).",
    )
    public_alpha: float = Field(
        0.1, gt=0, description="Concentration of these proportions. A small one gives few classes."
    )
    augment: Literal["none", "flip", "flip_crop", "rand_flip_crop", "speech"] = Field(
        "none",
        description="Random changes of samples in training; tests see them as they are. `flip`: left to right "
        "(FedScale's OpenImage). `flip_crop`: also shifts by up to 4 pixels (its CIFAR). "
        "`rand_flip_crop`: also RandAugment(2, 9) (FedorAS's CIFAR). `speech`: features move by up to 100 "
        "ms and are mixed with the class silence of the data (FedorAS's Speech Commands).",
    )
    unit_size: Annotated[int | str, PlainValidator(read_size), SIZE] = Field(
        "auto",
        description="Clients of a unit, about: a cohort at least. `auto` is 16, on a CPU a quarter of the round at "
        "most. Small networks on one or two executors train faster in larger units.",
    )
    cohort_size: Annotated[int | str, PlainValidator(read_size), SIZE] = Field(
        "auto",
        description="Most clients of one model that train side by side; 1 trains them one by one. `auto` takes what "
        "is measured fastest on this machine. Sizes differ in rounding: a number gives the same result "
        "everywhere.",
    )
    precision: Literal["float32", "bfloat16"] = Field(
        "float32",
        description="Number format of the clients' forward passes. `bfloat16` uses autocast; weights stay float32.",
    )
    local_epochs: int | None = Field(
        None,
        ge=1,
        description="Passes of a client over its samples in a round, in place of `local_steps`. Batches hold "
        "`batch_size` samples, the last one what is left. The client's time on the virtual clock and its "
        "capacity follow from its samples.",
    )
    client_optimizer: Literal["sgd", "adam"] = Field("sgd", description="Optimizer of the clients' steps.")
    client_momentum: float = Field(0.9, ge=0, lt=1, description="Momentum of the clients' SGD.")
    client_weight_decay: float = Field(
        5e-4, ge=0, description="Weight decay of the clients' optimizer: L2, under Adam as in torch.optim.Adam."
    )
    adam_beta1: float = Field(
        0.9, ge=0, lt=1, description="Decay of the mean of gradients under `client_optimizer: adam`."
    )
    adam_beta2: float = Field(
        0.999, ge=0, lt=1, description="Decay of the mean of squared gradients under `client_optimizer: adam`."
    )
    adam_eps: float = Field(
        1e-8,
        gt=0,
        description="Number added to the root of the mean of squared gradients under `client_optimizer: adam`.",
    )
    prox_mu: float = Field(
        0.0,
        ge=0,
        description="Weight of a FedProx term in the clients' objective. `fedprox`, `fedtrans` and `hypemefed` have "
        "keys of their own for it.",
    )
    control_variates: bool = Field(
        False,
        description="SCAFFOLD (Karimireddy et al. 2020, option II), with methods whose clients change the model that "
        "they receive, by SGD alone; others refuse it. Each gradient is corrected by the server's control variate less "
        "the client's. The aggregator keeps the clients' variates in the job's folder; they count as traffic in both "
        "directions.",
    )
    own_classes: bool = Field(
        False,
        description="Clients learn only the classes that they have (HeteroFL's masked cross-entropy). The loss sets "
        "logits of other classes to zero. A class's rows of the classifier are averaged over the clients "
        "that have it.",
    )
    mask_test: bool = Field(
        False,
        description="Tests of clients set the logits of classes without training samples to zero, as HeteroFL's "
        "public code does. Of equal logits, the lowest class counts. Results also have the accuracy without "
        "this mask. Global models and `test_on_all` are never masked.",
    )
    bn_statistics: Literal["auto", "running", "federated"] = Field(
        "auto",
        description="BatchNorm's statistics in tests. `running`: those of training. `federated`: re-estimated in a "
        "pass over clients' training data (for a client's personal network, over its own data). `auto`: "
        "the method's default. Like a test, such a pass adds no work, time or traffic. It leaves out clients of one "
        "sample: their personal networks keep the statistics of training.",
    )
    bn_statistics_clients: int = Field(
        100,
        ge=1,
        description="Most clients whose data such a pass takes, among those that can compute the model or are served "
        "it.",
    )
    personalise_epochs: int = Field(
        0,
        ge=0,
        description="Epochs in which, at the end of the job, each client fine-tunes a copy of its model on its "
        "training samples. Results have that accuracy beside the usual one. Keys of the job hold there, such as "
        "`prox_mu` and `clip_norm`. Those by which a method replaces them in its rounds do not, such as `fedprox.mu`, "
        "`heterofl.mask` and `heterofl.clip_norm`. With 0, no client does.",
    )
    test_on_all: bool = Field(
        False,
        description="At the end of the job, the model of each client is also tested on the test samples of all "
        "clients. Each personal model takes a pass of its own over them.",
    )
    auc: bool = Field(
        False,
        description="At the end of the job, clients' test samples are also ranked by their scores: "
        "[AUC](running.md#auc) of each class against the others. Data of text have none.",
    )
    test_around_training: bool = Field(
        False,
        description="At the end of the job, each client does one more local training, and its model is tested before "
        "and after it. It goes with methods whose summary has [a row for each type of device](device-types.md).",
    )
    pacer_rule: Literal["falls", "flat"] = Field(
        "falls",
        description="When Oort's pacer raises `round_threshold` by `pacer_delta`. `falls`: exploited clients' utility "
        "was higher in the `pacer_step` rounds before (its paper). `flat`: it was the same within a "
        "tenth; a rise to six times it lowers the threshold (FedScale).",
    )
    pyramidfl_utility: Literal["gradient", "loss"] = Field(
        "gradient",
        description="Utility that `sample_mode: pyramidfl` chooses by. `gradient`: norm of a client's last update "
        "times its samples. `loss`: Oort's, as in the public code. Dropout goes by `gradient` in any "
        "case.",
    )
    pyramidfl_epoch_beta: float = Field(
        1.0,
        ge=0,
        description="A client trains on while it would wait for the slowest participant. This factor scales that "
        "time; 0 turns it off.",
    )
    pyramidfl_dropout_low: float = Field(
        0.1, ge=0, le=1, description="Share of its update's tensors that the client of highest utility leaves out."
    )
    pyramidfl_dropout_high: float = Field(
        0.6,
        ge=0,
        le=1,
        description="Share of its update's tensors that the client of lowest utility leaves out. With 0 for both, no "
        "client leaves anything out.",
    )
    stop_gain: float | None = Field(
        None,
        ge=0,
        description="The job ends if the best mean client accuracy (0 to 1) of the last `stop_patience` is at most "
        "this much above the best before. FedTrans's appendix has 0.01. By default, the job trains all "
        "`rounds`.",
    )
    eval_macs: float | None = Field(
        None,
        gt=0,
        description="All clients are tested each time that their training MACs together pass a multiple of this "
        "number, beside `eval_interval`. Methods of different cost are then tested equally often.",
    )
    stop_macs: float | None = Field(
        None,
        gt=0,
        description="The job ends after the round in which all clients' training MACs together reach this number. "
        "Methods of different cost then train for the same work. By default, the job trains all `rounds`.",
    )
    stop_patience: int = Field(10, ge=1, description="Number of rounds, or evaluations, that `stop_gain` looks at.")
    stop_unit: Literal["rounds", "evaluations"] = Field(
        "rounds", description="What `stop_patience` counts. Accuracies are those of evaluations in any case."
    )
    clip_norm: float | None = Field(
        None, gt=0, description="Clipping norm of the clients' gradients. By default, they are not clipped."
    )
    max_update_norm: float | None = Field(
        None, gt=0, description="Largest norm of a client's change of its model. Longer ones are refused and counted."
    )
    dp_noise_multiplier: float | None = Field(
        None, gt=0, description="Noise per clipping norm. It turns on [differential privacy](privacy.md) of clients."
    )
    dp_round_epsilon: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Epsilon of one round alone (Dwork and Roth's Gaussian mechanism; NbAFL, Moss): rounds are not "
        "composed. It sets `dp_noise_multiplier` to sqrt(2 ln(1.25 / dp_delta)) over this.",
    )
    dp_clip_norm: float = Field(
        1.0,
        gt=0,
        description="L2 norm that a client's change is clipped to. With `dp_target_quantile`, it is the first one.",
    )
    dp_target_quantile: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Quantile of the changes' norms that the clipping norm follows. By default, the norm stays.",
    )
    dp_delta: float = Field(
        1e-5, gt=0, lt=1, description="Delta at which epsilon is reported. Set it below 1 / clients."
    )
    dp_epsilon: float | None = Field(
        None, gt=0, description="The job ends before a round that would exceed this epsilon."
    )
    dp_accounting: Literal["sampling", "participation"] = Field(
        "sampling",
        description="What epsilon rests on. `sampling`: each client takes part by its own secret coin. "
        "`participation`: the rounds in which it took part are counted, and can be public.",
    )
    dp_noise: Literal["seeded", "secret"] = Field(
        "seeded",
        description="Source of noise and coins. `seeded`: they follow from `seed`, and whoever knows it can remove "
        "them. `secret`: they follow from a secret of the operating system, and the job cannot be "
        "repeated.",
    )
    record_internals: bool = Field(
        False,
        description="Writes what the method's equations used in each round. It also writes weights in the last "
        "`checkpoint_keep` rounds.",
    )
    count_server_macs: bool = Field(
        False,
        description="Counts the multiply-accumulates of the server's own work in each round: `server_macs` in "
        "metrics.jsonl and summary.json. They are those of matrix products and convolutions; a mean of models has "
        "none. The work takes longer for it.",
    )
    checkpoint_interval: int = Field(1, ge=1, description="Rounds from one checkpoint to the next.")
    checkpoint_keep: int = Field(3, ge=1, description="Number of the last checkpoints that are kept.")
    resume: bool = Field(False, description="Continues from the last checkpoint of the same time_stamp.")
    resume_from: int | None = Field(None, ge=1, description="Continues from the checkpoint of this round instead.")
    unit_timeout_s: float = Field(600.0, gt=0, description="Longest wait in seconds for the next finished work unit.")
    register_timeout_s: float = Field(120.0, gt=0, description="Longest wait in seconds for all executors to register.")
    lease_s: float = Field(
        30.0,
        ge=0.5,
        description="Seconds without a sign of life after which an executor is lost. Its work goes to others.",
    )
    replacement_s: float = Field(
        120.0, ge=0, description="Longest wait in seconds for an executor to come back or be replaced if none is left."
    )
    reconnect_s: float = Field(
        60.0,
        ge=0,
        description="Longest time in seconds that an executor tries to reach an aggregator that does not answer.",
    )
    unit_tries: int = Field(
        2,
        ge=1,
        description="Tries of a work unit that fails, or whose executor dies. After them, the unit is dropped and its "
        "clients have failed.",
    )
    min_updates: int | None = Field(
        None,
        ge=1,
        description="Updates with which a round can close if executors fail; fewer end the job. By default, the round "
        "waits for every planned update, and one successful update is enough.",
    )
    max_message_mb: int = Field(256, ge=1, le=2047, description="Largest message in MB, in either direction.")
    token_file: str | None = Field(
        None,
        description="File of mode 600 with 64 hexadecimal digits that sign every message. `fedscale driver` makes one "
        "for each start.",
    )
    message_window_s: float = Field(
        120.0,
        gt=0,
        le=86400,
        description="Largest difference in seconds between the time in a message and the clock of its receiver.",
    )
    tls_ca: str | None = Field(
        None,
        description="PEM file of the authority that signed the certificates of both sides, for TLS with these. Without "
        "it, a job with token_file whose ps_ip is not loopback uses TLS with certificates that come from the token.",
    )
    tls_aggregator_cert: str | None = Field(None, description="PEM file of the aggregator's certificate, for ps_ip.")
    tls_aggregator_key: str | None = Field(None, description="PEM file of the aggregator's key, without a password.")
    tls_executor_cert: str | None = Field(None, description="PEM file of the executors' certificate.")
    tls_executor_key: str | None = Field(None, description="PEM file of the executors' key, without a password.")

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
            fault = PydanticCustomError("noise", "it sets dp_noise_multiplier, which is given too")
            details = InitErrorDetails(type=fault, loc=("dp_round_epsilon",), input=keys["dp_round_epsilon"])
            raise ValidationError.from_exception_data(cls.__name__, [details])
        return {**keys, "dp_noise_multiplier": math.sqrt(2 * math.log(1.25 / delta)) / epsilon}

    @property
    def resumes(self) -> bool:
        """Whether the job continues from a checkpoint."""
        return self.resume or self.resume_from is not None
