"""Hyperparameters from a job's keys: defaults, types, one-sentence refusals."""

import pytest

from fedscale_ext.config.job_config import from_argv, make_config
from fedscale_ext.config.method_params import make_params
from fedscale_ext.config.methods import method_class
from fedscale_ext.core.errors import UserError
from fedscale_ext.methods.averaging.fedavg import FedAvgParams
from fedscale_ext.methods.averaging.fedprox import FedProxParams
from fedscale_ext.methods.averaging.fedyogi import FedYogiParams
from fedscale_ext.methods.fedtrans.params import FedTransParams
from fedscale_ext.methods.hypemefed.params import HypeMeFedParams


def fedtrans(**keys):
    return make_params(
        FedTransParams, make_config({}, {"method": "fedtrans", **{f"fedtrans.{k}": v for k, v in keys.items()}})
    )


def test_the_papers_defaults():
    p = make_params(FedTransParams, make_config({}, {"method": "fedtrans", "data_set": "femnist"}))
    assert (p.alpha, p.beta, p.gamma, p.delta, p.T, p.eta) == (0.9, 0.003, 10, 30, 5, 0.98)
    assert (p.widen_factor, p.deepen_count, p.transform_policy) == (2.0, 1, "alternate")
    assert (p.cell_selection, p.sharing, p.warmup, p.decay, p.l2s) == ("activeness", "soft", "on", "on", False)


@pytest.mark.parametrize(("data_set", "delta"), [("cifar10", 20), ("CIFAR10", 20), ("openImg", 50), ("femnist", 30),
                                                 ("speech", 100), ("openimage", 50), ("amazon", 30)])  # fmt: skip
def test_delta_follows_the_data_set_unless_given(data_set, delta):
    keys = {"method": "fedtrans", "data_set": data_set}
    assert make_params(FedTransParams, make_config({}, keys)).delta == delta
    assert make_params(FedTransParams, make_config({}, {**keys, "fedtrans.delta": 7})).delta == 7


@pytest.mark.parametrize(("name", "word"), [("decay", "off"), ("decay", "on"), ("warmup", "on"), ("sharing", "none")])
def test_words_that_yaml_and_command_lines_read_as_values_keep_their_meaning(tmp_path, name, word):
    from fedscale_ext.config.job_config import load_config, to_argv

    path = tmp_path / "job.yml"
    path.write_text(f"job_conf:\n  - method: fedtrans\n  - fedtrans.{name}: {word}\n", encoding="utf-8")
    config = load_config(path)
    assert getattr(make_params(FedTransParams, config), name) == word
    assert getattr(make_params(FedTransParams, from_argv(to_argv(config))), name) == word
    overridden = load_config(path, [f"fedtrans.{name}={word}"])
    assert getattr(make_params(FedTransParams, overridden), name) == word


def test_text_becomes_numbers():
    p = fedtrans(gamma="4", beta="1e-3", l2s="true", widen_factor="1.5")
    assert (p.gamma, p.beta, p.l2s, p.widen_factor) == (4, 1e-3, True, 1.5)


@pytest.mark.parametrize("name", ["symmetry", "transform_policy", "cell_selection", "warmup", "doc_loss", "sharing",
                                  "decay", "decay_clock", "similarity", "sim_reduce", "normalise", "align", "ties",
                                  "stop", "server_opt"])  # fmt: skip
def test_a_choice_refuses_other_words(name):
    with pytest.raises(UserError, match=rf"'fedtrans\.{name}' is 'nonsense'; it must be '"):
        fedtrans(**{name: "nonsense"})


@pytest.mark.parametrize(("name", "value"), [
    ("gamma", 0), ("delta", 0), ("T", 0), ("deepen_count", 0), ("stop_rounds", 0), ("alpha", 1.1), ("eta", -0.1),
    ("cap_quantile", 2), ("serve_min_rounds", -1), ("stop_gain", -0.5), ("widen_factor", 1), ("widen_factor", "inf"),
    ("beta", "nan"), ("alpha", "nan"), ("gamma", 2.5), ("l2s", "perhaps"),
    ("widen_factor", 1e12), ("T", 10**20), ("gamma", 10**20), ("delta", 10**20), ("deepen_count", 10**6),
    ("prox_mu", "inf"), ("stop_gain", "inf"),
])  # fmt: skip
def test_values_out_of_range_are_refused_by_name(name, value):
    with pytest.raises(UserError, match=rf"fedtrans\.{name}"):
        fedtrans(**{name: value})


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("lr", float("inf"), "hypemefed.lr is inf; it must be a finite number"),
        ("lr", "1e999", "hypemefed.lr is inf; it must be a finite number"),
        ("prox_mu", "nan", "hypemefed.prox_mu is nan; it must be a finite number"),
        ("shares", [0.5, 0.5, float("inf")], r"hypemefed.shares\[2\] is inf; it must be a finite number"),
    ],
)
def test_numbers_that_are_not_finite_are_refused(name, value, said):
    keys = {"method": "hypemefed", "hypemefed.levels": "fix", f"hypemefed.{name}": value}
    with pytest.raises(UserError, match=said):
        make_params(HypeMeFedParams, make_config({}, keys))


@pytest.mark.parametrize(("key", "value", "said"), [
    ("hypemefed.lr", True, "'hypemefed.lr' is True; it must be a number"),
    ("fedtrans.gamma", "true", "'fedtrans.gamma' is True; it must be a whole number"),
    ("heterofl.rates", [True, 0.5], r"'heterofl.rates\[0\]' is True; it must be a number"),
])  # fmt: skip
def test_truth_values_are_no_numbers(key, value, said):
    method = key.partition(".")[0]
    with pytest.raises(UserError, match=said):
        make_params(method_class(method).Params, make_config({}, {"method": method, key: value}))


def test_an_unknown_hyperparameter_gets_a_suggestion():
    with pytest.raises(UserError, match=r"no hyperparameter fedtrans\.gama; did you mean 'fedtrans\.gamma'\?"):
        fedtrans(gama=3)
    with pytest.raises(UserError, match=r"no hyperparameter fedtrans\.xyz; it has alpha, beta"):
        fedtrans(xyz=3)
    with pytest.raises(UserError, match=r"fedavg\.mu; it has no hyperparameters"):
        make_params(FedAvgParams, make_config({}, {"method": "fedavg", "fedavg.mu": 1}))


def test_fedscales_keys_are_the_defaults_of_fedprox_and_fedyogi():
    assert make_params(FedProxParams, make_config({}, {"method": "fedprox", "proxy_mu": 0.3})).mu == 0.3
    both = {"method": "fedprox", "proxy_mu": 0.3, "fedprox.mu": 0.7}
    assert make_params(FedProxParams, make_config({}, both)).mu == 0.7
    yogi = make_params(FedYogiParams, make_config({}, {"method": "fedyogi", "yogi_eta": 0.1, "fedyogi.beta": 0.5}))
    assert yogi == FedYogiParams(eta=0.1, tau=1e-8, beta=0.5, beta2=0.99)


@pytest.mark.parametrize(
    ("method", "keys", "key"),
    [
        ("fedprox", {}, "fedprox.mu"),
        ("fedprox", {"fedprox.mu": 0}, "fedprox.mu"),
        ("fedprox", {"proxy_mu": 0}, "fedprox.mu"),
        ("fedtrans", {"fedtrans.prox_mu": 0.1}, "fedtrans.prox_mu"),
        ("hypemefed", {"hypemefed.prox_mu": 0.1}, "hypemefed.prox_mu"),
    ],
)
def test_prox_mu_is_refused_where_the_methods_own_key_takes_its_place(method, keys, key):
    config = make_config({}, {"method": method, "prox_mu": 0.5, "hypemefed.levels": "fix", **keys})
    with pytest.raises(UserError, match=rf"^prox_mu does nothing .* of method {method} .* {key}: set that, or remove "):
        method_class(method).check_settings(config)


@pytest.mark.parametrize("method", ["fedavg", "fedtrans", "depthfl"])
def test_prox_mu_is_taken_where_the_method_has_no_value_of_its_own(method):
    method_class(method).check_settings(make_config({}, {"method": method, "prox_mu": 0.5}))


@pytest.mark.parametrize(("params", "key"), [(FedProxParams, "fedprox.mu"), (FedYogiParams, "fedyogi.eta")])
def test_negative_weights_are_refused(params, key):
    with pytest.raises(UserError, match=key.partition(".")[0]):
        make_params(params, make_config({}, {"method": key.partition(".")[0], key: -1}))


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        ("heterofl.rate", "method heterofl has no hyperparameter heterofl.rate; did you mean 'heterofl.rates'?"),
        ("fedtrans.betta", "method fedtrans has no hyperparameter fedtrans.betta; did you mean 'fedtrans.beta'?"),
        ("fedprox.zzz", "method fedprox has no hyperparameter fedprox.zzz; it has "),
        ("hterofl.rates", "there is no method 'hterofl'; did you mean 'heterofl'?"),
    ],
)
def test_a_key_of_another_method_that_it_does_not_have_is_refused(key, sentence):
    with pytest.raises(UserError) as refused:
        make_params(FedAvgParams, make_config({}, {"method": "fedavg", key: 1}))
    assert str(refused.value).startswith(sentence)


def test_a_value_of_another_methods_key_binds_nothing():
    make_params(FedAvgParams, make_config({}, {"method": "fedavg", "fedtrans.beta": "nonsense"}))
