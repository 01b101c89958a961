"""The job's keys by what they are about, FedScale's among them, as the reference lists them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class KeyGroup:
    """Keys of one subject.

    Attributes:
        title: Heading in the reference.
        keys: Names of the keys, in the order in which users meet them.
        about: Sentence that concerns several of the keys, as Markdown; mostly empty.

    """

    title: str
    keys: tuple[str, ...]
    about: str = ""


def _keys(names: str) -> tuple[str, ...]:
    return tuple(names.split())


# each key of JobKeys and of FEDSCALE_MEANINGS is in one group
GROUPS = (
    KeyGroup("The job", _keys("job_name log_path method model initial_weights rounds seed")),
    KeyGroup("Data", _keys("data_set data_dir data_map_file filter_less data_seed test_split sample_shape augment")),
    KeyGroup(
        "Public samples",
        _keys("public_samples public_dir public_fraction public_classes public_alpha"),
        "Methods that distil learn from these samples ([public data](public-data.md)).",
    ),
    KeyGroup(
        "Devices",
        _keys(
            "device_conf_file device_avail_file device_match capacity_rule deadline_s capacity_model capacity_spread "
            "reference_macs groups_by"
        ),
    ),
    KeyGroup(
        "Selection",
        _keys(
            "num_participants overcommitment sample_mode exploration_factor exploration_decay exploration_min "
            "sample_window round_threshold round_penalty clip_bound cut_off_util pacer_delta pacer_step pacer_rule "
            "blacklist_rounds blacklist_max_len pyramidfl_utility pyramidfl_epoch_beta pyramidfl_dropout_low "
            "pyramidfl_dropout_high"
        ),
        "[Who takes part](selection.md) explains Oort and PyramidFL. Under `pyramidfl`, some of Oort's keys default to "
        "what its public code has: `exploration_decay` 0.95, `exploration_min` 0.2, `round_threshold` 10, "
        "`clip_bound` 0.98, `cut_off_util` 0.7.",
    ),
    KeyGroup(
        "Local training",
        _keys(
            "local_steps local_epochs batch_size learning_rate decay_factor decay_round min_learning_rate "
            "client_optimizer client_momentum client_weight_decay adam_beta1 adam_beta2 adam_eps clip_norm prox_mu "
            "control_variates own_classes"
        ),
    ),
    KeyGroup(
        "Evaluation",
        _keys(
            "eval_interval eval_macs test_bsz mask_test bn_statistics bn_statistics_clients personalise_epochs "
            "test_on_all auc test_around_training"
        ),
    ),
    KeyGroup("Stopping", _keys("stop_gain stop_patience stop_unit stop_macs")),
    KeyGroup(
        "Privacy",
        _keys(
            "dp_noise_multiplier dp_round_epsilon dp_clip_norm dp_target_quantile dp_delta dp_epsilon dp_accounting "
            "dp_noise"
        ),
        "[Differential privacy](privacy.md) says what these keys promise.",
    ),
    KeyGroup("Speed", _keys("use_cuda cohort_size unit_size precision")),
    KeyGroup(
        "Records and checkpoints",
        _keys("record_internals count_server_macs checkpoint_interval checkpoint_keep resume resume_from"),
    ),
    KeyGroup(
        "Faults",
        _keys(
            "unit_timeout_s unit_tries min_updates max_update_norm register_timeout_s lease_s replacement_s reconnect_s"
        ),
    ),
    KeyGroup(
        "Network",
        _keys(
            "max_message_mb token_file message_window_s tls_ca tls_aggregator_cert tls_aggregator_key "
            "tls_executor_cert tls_executor_key"
        ),
        "[Several machines](cluster.md) shows these keys in use.",
    ),
)

# those that most jobs set, and Oort's
FEDSCALE_MEANINGS = {
    "job_name": "Name of the job, which `driver status`, `stop`, `logs`, `report` and `methods show` take.",
    "log_path": "Folder of the results, which are in `logs/JOB_NAME/TIME` below it.",
    "data_set": "Kind of data: a name from `fedscale dataset list`, or a word of your own for imported data.",
    "data_dir": "Folder of the data, in FedScale's layout.",
    "data_map_file": "File that deals the training samples to clients. The default is "
    "`client_data_mapping/train.csv` of `data_dir`; FedScale would deal the samples out evenly.",
    "model": "Name of a model ([models](models.md)), or the JSON file of a spec. "
    "Clients of methods with types, such as `fedproto` and `fedmd`, train their `types` instead. Some of these take it "
    "for the server or for what all share, as their pages say.",
    "rounds": "Rounds of training.",
    "num_participants": "Number of clients in a round.",
    "overcommitment": "Select this many times `num_participants`, and keep the fastest by the virtual clock. "
    "With 1.0, no client is dropped.",
    "sample_mode": "Choice of participants among the clients that are online. `random` draws them with equal "
    "probability; `oort` and `pyramidfl` prefer useful and fast ones.",
    "exploration_factor": "Share of the participants that have never trained, before its first decay. Round 1 has only "
    "such clients.",
    "exploration_decay": "Factor of that share in each round from the second on, if more clients are online than are "
    "selected.",
    "exploration_min": "Least value of that share.",
    "sample_window": "Number of candidates per new participant. Candidates are the best clients by samples and speed.",
    "round_threshold": "Per cent of the clients that take less time than the preferred duration T.",
    "round_penalty": "Exponent of T / t, by which the score of a client is multiplied if its time t exceeds T.",
    "clip_bound": "Quantile at which utilities are clipped.",
    "cut_off_util": "Share of the score at the cut that a client needs to be drawn.",
    "pacer_delta": "Step of `round_threshold`.",
    "pacer_step": "Rounds whose utility the pacer compares with those before.",
    "blacklist_rounds": "Participations above which a client can be left out. With -1, none is.",
    "blacklist_max_len": "Most clients that are left out, as a share of all that can train.",
    "device_conf_file": "File with each device's speed and bandwidth. `resampled` draws devices from FedScale's "
    "published marginals ([device traces](../device_traces/README.md)).",
    "device_avail_file": "File that says when each device is online. By default, all always are. `resampled` draws it "
    "from published hourly fractions.",
    "local_steps": "Batches that a client trains in a round.",
    "batch_size": "Samples of a batch. A client with fewer takes all of them.",
    "learning_rate": "Learning rate of the clients' steps.",
    "decay_factor": "Factor of the learning rate every `decay_round` rounds.",
    "decay_round": "Rounds from one decay of the learning rate to the next. As in FedScale, the first decay comes a "
    "round earlier: with 10, round 10 trains at the decayed rate.",
    "min_learning_rate": "Value below which the learning rate does not decay.",
    "eval_interval": "Rounds from one test of all clients to the next. The first and the last round are tested, too.",
    "test_bsz": "Samples of a batch in tests. It changes speed and memory. It changes results only where BatchNorm's "
    "statistics are re-estimated, as each batch of such a pass is normalised by itself.",
    "filter_less": "Clients with fewer training samples never train. Small data sets want 0.",
    "use_cuda": "Train on GPUs. What HypeMeFed and Moss train on the server runs on a GPU of the aggregator's machine, "
    "if it has one.",
}
