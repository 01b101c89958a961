"""Settings without effect are told in one note, each with its reason."""

import pytest

from fedscale_ext.config.arguments import fedscale_actions
from fedscale_ext.config.idle_settings import idle_keys, is_unread
from fedscale_ext.config.job_config import make_config
from fedscale_ext.config.key_groups import GROUPS
from fedscale_ext.config.methods import method_class, method_names


def test_keys_of_other_methods_are_named():
    keys = {"method": "fedtrans", "fedtrans.beta": 0.1, "moss.wire": "ce", "fluid.p": [0.5]}
    assert idle_keys(make_config({}, keys)) == "moss.wire, fluid.p do nothing: the method is fedtrans"
    keys.pop("moss.wire")
    assert idle_keys(make_config({}, keys)) == "fluid.p does nothing: the method is fedtrans"
    assert idle_keys(make_config({}, {"fedavg.x": 1})) is None


def test_all_of_many_keys_are_named():
    keys = {f"moss.k{number}": 1 for number in range(8)}
    assert idle_keys(make_config({}, keys)) == f"{', '.join(keys)} do nothing: the method is fedavg"


def test_a_key_that_one_job_of_a_sweep_reads_is_not_idle():
    keys = {"moss.wire": "ce", "fluid.p": [0.5], "fedtrans.beta": 0.1}
    jobs = [make_config({}, {**keys, "method": method}) for method in ("fedtrans", "fedavg", "fedtrans")]
    assert idle_keys(*jobs) == "moss.wire, fluid.p do nothing: the methods are fedtrans, fedavg"
    assert idle_keys(*jobs, make_config({}, {**keys, "method": "moss"})) == (
        "fluid.p does nothing: the methods are fedtrans, fedavg, moss"
    )


@pytest.mark.parametrize(
    ("keys", "note"),
    [
        ({"public_fraction": 0.5}, "public_fraction does nothing: public_samples is 0"),
        ({"public_fraction": 0.5, "public_alpha": 1, "public_classes": "dirichlet"},
         "public_fraction, public_alpha, public_classes do nothing: public_samples is 0"),
        ({"public_alpha": 1, "public_samples": 10}, "public_alpha does nothing: public_classes is balanced"),
        ({"public_alpha": 1, "public_samples": 10, "public_classes": "dirichlet"}, None),
        ({"public_fraction": 0.5, "public_samples": 10}, "public_fraction does nothing: the method is fedavg"),
        ({"public_fraction": 0.5, "public_samples": 10, "method": "fedmd"}, None),
        ({"public_fraction": 0.5, "public_samples": 10, "method": "somebodys"}, None),
        ({"public_samples": 10, "public_classes": "dirichlet", "public_dir": "digits"},
         "public_samples, public_classes, public_dir do nothing: the method is fedavg"),
        ({"public_samples": 10, "public_classes": "dirichlet", "public_dir": "digits", "method": "moss"}, None),
        ({"capacity_spread": 8}, "capacity_spread does nothing: capacity_rule is deadline"),
        ({"capacity_spread": 8, "capacity_rule": "computation"}, None),
        ({"round_threshold": 30}, "round_threshold does nothing: sample_mode is random"),
        ({"round_threshold": 30, "sample_mode": "oort"}, None),
        ({"round_threshold": 30, "sample_mode": "pyramidfl"}, None),
        ({"yogi_eta": 0.1, "yogi_beta": 0.5}, "yogi_eta, yogi_beta do nothing: the method is fedavg"),
        ({"yogi_eta": 0.1, "method": "fedyogi"}, None),
        ({"yogi_eta": 0.1, "gradient_policy": "fed-yogi"}, None),
        ({"yogi_eta": 0.1, "method": "fedyogi", "fedyogi.eta": 0.2}, "yogi_eta does nothing: fedyogi.eta is 0.2"),
        ({"yogi_eta": 0.1, "method": "fedtrans"}, "yogi_eta does nothing: fedtrans.server_opt is avg"),
        ({"yogi_eta": 0.1, "method": "fedtrans", "fedtrans.server_opt": "adam"}, None),
        ({"yogi_eta": 0.1, "method": "somebodys"}, None),  # whose code may read any key
        ({"proxy_mu": 0.1, "method": "fedyogi"}, "proxy_mu does nothing: the method is fedyogi"),
        ({"proxy_mu": 0.1, "method": "fedprox"}, None),
        ({"proxy_mu": 0.1, "method": "fedprox", "fedprox.mu": 1}, "proxy_mu does nothing: fedprox.mu is 1"),
        ({"qfed_q": 2, "method": "fedyogi"}, "qfed_q does nothing: the method is fedyogi"),
        ({"qfed_q": 2, "gradient_policy": "q-fedavg"}, None),
        ({"qfed_q": 2, "method": "qfedavg", "qfedavg.q": 1}, "qfed_q does nothing: qfedavg.q is 1"),
        ({"num_loaders": 2, "model_zoo": "torchcv"},
         "num_loaders, model_zoo do nothing: only FedScale's own code reads that"),
        ({"weight_decay": 0.01}, "weight_decay does nothing: the key of clients' steps is client_weight_decay"),
        ({"num_loaders": 2, "weight_decay": 0.01, "method": "somebodys"}, None),
        ({"device_match": "order"}, "device_match does nothing: device_conf_file is resampled"),
        ({"device_match": "order", "device_conf_file": "devices.csv"}, None),
        ({"device_match": "order", "device_avail_file": "online.csv"}, None),
        ({"bn_statistics_clients": 9, "bn_statistics": "running"},
         "bn_statistics_clients does nothing: bn_statistics is running"),
        ({"bn_statistics_clients": 9, "bn_statistics": "federated"}, None),
        ({"method": "fedtrans", "fedtrans.stop_gain": 0.1}, "fedtrans.stop_gain does nothing: fedtrans.stop is rounds"),
        ({"method": "fedtrans", "fedtrans.stop_gain": 0.1, "fedtrans.stop": "accuracy"}, None),
        ({"clip_norm": 1, "method": "heterofl"}, None),
        ({"clip_norm": 1, "method": "heterofl", "heterofl.clip_norm": 2},
         "clip_norm does nothing: heterofl.clip_norm is 2"),
        ({"mask_test": True, "method": "fedrolex", "fedrolex.mask_test": False},
         "mask_test does nothing: fedrolex.mask_test is False"),
        ({"round_threshold": 30, "blacklist_max_len": 0.5, "sample_mode": "oort"},
         "blacklist_max_len does nothing: blacklist_rounds is -1"),
        ({"blacklist_max_len": 0.5, "blacklist_rounds": 0, "sample_mode": "oort"}, None),
        ({"stop_gain": 0.01, "rounds": 10}, "stop_gain does nothing: stop_patience, 10, is not below rounds, 10"),
        ({"stop_gain": 0.01, "rounds": 11}, None),
        ({"stop_gain": 0.01, "stop_patience": 30, "stop_unit": "evaluations", "rounds": 20},
         "stop_gain, stop_unit do nothing: stop_patience, 30, is not below rounds, 20"),
        ({"pacer_step": 30, "sample_mode": "oort", "rounds": 61},
         "pacer_step does nothing: rounds, 61, is not above 2 pacer_step + 1, 61"),
        ({"pacer_step": 30, "sample_mode": "oort", "rounds": 62}, None),
        ({"decay_round": 5, "decay_factor": 1}, "decay_round does nothing: decay_factor is 1"),
        ({"decay_round": 5, "decay_factor": 0.5}, None),
        ({"decay_round": 5, "decay_factor": 1, "method": "somebodys"}, None),
        ({"decay_factor": 0.5, "decay_round": 11, "rounds": 10},
         "decay_factor does nothing: decay_round, 11, is above rounds, 10"),
        ({"decay_factor": 0.5, "decay_round": 10, "rounds": 10}, None),
        ({"decay_factor": 0.5, "decay_round": 2, "min_learning_rate": 0.01, "method": "fednas"},
         "decay_factor, decay_round, min_learning_rate do nothing: fednas.schedule is cosine"),
        ({"decay_factor": 0.5, "decay_round": 2, "method": "fednas", "fednas.schedule": "job"}, None),
        ({"learning_rate": 0.1, "decay_factor": 0.5, "client_weight_decay": 1e-3, "method": "fedmask"},
         "learning_rate, decay_factor, client_weight_decay do nothing: fedmask's clients learn scores, at fedmask.lr"),
        # clients then clip by the job's; so does fine-tuning
        ({"clip_norm": 1, "method": "heterofl", "heterofl.clip_norm": None}, None),
        ({"clip_norm": 1, "method": "heterofl", "heterofl.clip_norm": 2, "personalise_epochs": 1}, None),
        ({"own_classes": True, "method": "heterofl", "personalise_epochs": 1}, None),
        ({"own_classes": True, "method": "heterofl"}, "own_classes does nothing: heterofl.mask is true"),
        ({"own_classes": True, "method": "heterofl", "heterofl.mask": False}, None),
        ({"own_classes": True, "method": "fedrolex"}, None),
        ({"own_classes": True, "method": "fedavg"}, None),
        ({"num_classes": 5, "input_dim": 3}, "num_classes, input_dim do nothing: the data tell classes and shape"),
        ({"num_classes": 5, "method": "somebodys"}, None),
        ({"loss_decay": 0.1}, None),
        ({"loss_decay": 0.1, "method": "qfedavg"}, "loss_decay does nothing: the method is qfedavg"),
        ({"gradient_policy": "fed-yogi", "method": "fedavg"}, "gradient_policy does nothing: method is fedavg"),
        ({"gradient_policy": "fed-yogi"}, None),
        ({"capacity_spread": 8, "moss.lr": 1, "yogi_eta": 1},
         "capacity_spread does nothing: capacity_rule is deadline; "
         "moss.lr, yogi_eta do nothing: the method is fedavg"),
    ],
)  # fmt: skip
def test_a_setting_that_another_one_leaves_unread_is_told(keys, note):
    assert idle_keys(make_config({}, keys)) == note


def test_public_data_are_read_by_the_methods_that_need_them():
    """The table names them, as a driver starts jobs without the methods' classes."""
    needy = [name for name in method_names() if getattr(method_class(name).Params, "needs_public", False)]
    keys = {"public_fraction": 0.5, "public_samples": 10}
    assert needy == [name for name in method_names() if idle_keys(make_config({}, {**keys, "method": name})) is None]


def test_a_setting_that_one_job_of_a_sweep_reads_is_not_told():
    arms = [make_config({}, {"yogi_eta": 0.1, "method": method}) for method in ("fedavg", "fedyogi", "fedprox")]
    assert idle_keys(*arms) is None
    assert idle_keys(arms[0], arms[2]) == "yogi_eta does nothing: the methods are fedavg, fedprox"
    rules = [make_config({}, {"capacity_spread": 8, "capacity_rule": rule}) for rule in ("deadline", "computation")]
    assert idle_keys(*rules) is None and idle_keys(rules[0]) is not None


def test_each_key_of_fedscale_is_explained_or_told_to_have_no_effect() -> None:
    explained = {key for group in GROUPS for key in group.keys}
    without_effect = {key for key in fedscale_actions() if is_unread(make_config({}, {"method": "fedavg"}).echo(), key)}
    # of one value only, of processes and machines, of the choice of a method, and rare ones that are read
    others = set(
        "engine task experiment_mode test_ratio gradient_policy ps_ip ps_port this_rank num_executors executor_configs "
        "cuda_device time_stamp wandb_token filter_more sample_seed loss_decay".split()
    )
    assert set(fedscale_actions()) - explained - without_effect == others


def test_keys_with_hyphens_are_unread_as_headers_have_them_too():
    settings = make_config({}, {"window-size": 0.5}).echo()
    assert "window_size" in settings and is_unread(settings, "window_size") and is_unread(settings, "window-size")
