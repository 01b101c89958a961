import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedscale_ext import compat
from fedscale_ext.config.job_config import (
    decisive,
    entry_path,
    from_argv,
    load_config,
    make_config,
    shipped_configs,
    to_argv,
    with_values,
)
from fedscale_ext.core.errors import UserError

HEAD = "ps_ip: 127.0.0.1\nworker_ips:\n  - localhost:[2]\n"


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "job.yml"
    path.write_text(text, encoding="utf-8")
    return path


def test_every_key_of_fedscale_keeps_its_name_and_default() -> None:
    from fedscale.cloud import config_parser

    config = make_config({}, {})
    # read from a fresh parse: install_arguments may have replaced the module's own
    defaults = vars(config_parser.parser.parse_args([]))
    changed = {key for key, value in defaults.items() if getattr(config.fedscale, key) != value}
    # use_cuda is True instead of "True", ~ is expanded in the paths
    assert changed == {"device_conf_file", "use_cuda", "data_dir", "conf_path"}


@pytest.mark.parametrize(("text", "value"), [("False", False), ("True", True), ("no", False), ("1", True)])
def test_truth_values_are_what_they_say(text: str, value: bool) -> None:
    for key in ("save_checkpoint", "use_cuda", "train_uniform", "mlm", "line_by_line"):
        assert getattr(make_config({}, {key: text}).fedscale, key) is value


def test_use_cuda_is_not_evaluated() -> None:
    with pytest.raises(UserError, match="use_cuda"):
        make_config({}, {"use_cuda": "__import__('os').getpid()"})


@settings(deadline=None, derandomize=True, max_examples=60)
@given(
    rounds=st.integers(1, 10**6),
    rate=st.floats(1e-6, 10),
    cuda=st.booleans(),
    beta=st.floats(-1, 1),
    shape=st.lists(st.integers(1, 64), min_size=1, max_size=4),
    rates=st.lists(st.floats(0.1, 1) | st.integers(1, 9) | st.booleans() | st.sampled_from(["all", "on"])),
    clip=st.none() | st.floats(0.1, 9),
    name=st.text("abc-_./", min_size=1),
)
def test_a_command_line_carries_a_configuration_whole(
    rounds: int, rate: float, cuda: bool, beta: float, shape: list, rates: list, clip: float | None, name: str
) -> None:
    flat = {"rounds": rounds, "learning_rate": rate, "use_cuda": cuda, "fedtrans.beta": beta, "input_shape": shape,
            "heterofl.rates": rates, "clip_norm": clip, "job_name": f"j{name}", "record_internals": cuda}  # fmt: skip
    config = make_config({}, flat)
    there = from_argv(to_argv(config))
    assert there.echo() == config.echo()
    assert there.decisive() == config.decisive()


def test_fedscales_own_driver_passes_keys_and_values_apart() -> None:
    words = "--time_stamp 1121_0400 --ps_ip localhost --rounds 7 --use_cuda False --input_shape 1 3 28 28 --this_rank=2"
    words += " --heterofl.rates=[1.0, 0.5]"
    config = from_argv(
        [*words.split(), "--num_executors=2", "--executor_configs=localhost:[2]", "--cuda_device=cuda:0"]
    )
    assert config.fedscale.rounds == 7
    assert config.fedscale.use_cuda is False
    assert config.fedscale.input_shape == [1, 3, 28, 28]
    assert config.params == {"heterofl.rates": [1.0, 0.5]}
    assert config.fedscale.this_rank == 2


@pytest.mark.parametrize(
    "types",
    [
        "[n:Net(width=9, depth=(1, 2)), lenet_6k]",
        "['n:Net(width=9, depth=(1, 2))', lenet_6k]",
        "\n      - n:Net(width=9, depth=(1, 2))\n      - lenet_6k",
        "'[n:Net(width=9, depth=(1, 2)), lenet_6k]'",
    ],
)
def test_a_comma_within_brackets_belongs_to_a_value(tmp_path: Path, types: str) -> None:
    whole = {"fedproto.types": ["n:Net(width=9, depth=(1, 2))", "lenet_6k"]}
    config = load_config(write(tmp_path, HEAD + f"job_conf:\n  - fedproto.types: {types}\n"))
    assert config.params == whole and from_argv(to_argv(config)).params == whole
    assert load_config(write(tmp_path, HEAD + "job_conf: []\n"), [f"fedproto.types={types}"]).params == whole


@pytest.mark.parametrize("stamp", ["1126_214611", "0101_012345", "0912_093000"])
def test_a_time_stamp_needs_no_quotes(tmp_path: Path, stamp: str) -> None:
    """YAML 1.1 reads 1126_214611 as a number; the folder of a run has this name."""
    conf = tmp_path / "job.yml"
    conf.write_text(f"job_conf:\n  - time_stamp: {stamp}\n  - rounds: 1_000\n")
    assert load_config(conf).fedscale.time_stamp == stamp
    assert load_config(conf, [f"time_stamp={stamp}"]).fedscale.time_stamp == stamp
    assert load_config(conf).fedscale.rounds == 1000


@pytest.mark.parametrize("stamp", ["", ".", "..", "../x", "a/b", "/tmp/x", "a b", "a\n", "-x", ".x", "x" * 101])
def test_a_time_stamp_that_is_no_name_of_a_folder_is_refused(tmp_path: Path, stamp: str) -> None:
    """The run's folder has this name, in the folder of its job; another one could lie anywhere."""
    rule = (
        "it must be a folder's name of 1 to 100 letters, digits, '_', '-', '.' and ':', and begin with a letter, a "
        "digit or '_'"
    )
    said = f"key 'time_stamp' is {stamp!r:.100}; {rule}"
    conf = write(tmp_path, f"job_conf:\n  - time_stamp: {json.dumps(stamp)}\n")
    with pytest.raises(UserError) as error:
        load_config(conf)
    assert str(error.value) == f"{conf}: {said}"
    with pytest.raises(UserError) as error:
        from_argv([f"--time_stamp={stamp}"])
    assert str(error.value) == f"the configuration: {said}"
    assert make_config({}, {"time_stamp": "_" + "x" * 99}).fedscale.time_stamp == "_" + "x" * 99


def test_variables_are_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLACE", "/some")
    path = write(tmp_path, HEAD + "job_conf:\n  - data_dir: $PLACE/data\n")
    assert load_config(path).fedscale.data_dir == "/some/data"


def test_the_last_word_wins() -> None:
    config = with_values(make_config({}, {"rounds": 3}), rounds=4)
    assert config.fedscale.rounds == 4
    assert "--rounds=4" in to_argv(config, this_rank=1)


def test_ps_ip_of_the_command_line_stands_above_that_of_both_places(tmp_path: Path) -> None:
    for head in ("ps_ip: 10.0.0.1\n", "ps_ip: 10.0.0.2\n", ""):
        path = write(tmp_path, f"{head}job_conf:\n  - ps_ip: 10.0.0.2\n")
        config = load_config(path, ["ps_ip=127.0.0.1"])
        read = from_argv(to_argv(config))
        assert {config.cluster.ps_ip, config.fedscale.ps_ip, read.fedscale.ps_ip} == {"127.0.0.1"}


def test_truth_values_are_taken_where_they_belong() -> None:
    assert make_config({}, {"auc": True, "own_classes": "yes"}).job.own_classes is True


def test_pyramidfl_has_the_defaults_of_its_code() -> None:
    plain, pyramid = make_config({}, {"sample_mode": "oort"}), make_config({}, {"sample_mode": "pyramidfl"})
    names = (
        "exploration_factor",
        "exploration_decay",
        "exploration_min",
        "round_threshold",
        "clip_bound",
        "cut_off_util",
    )
    assert [getattr(plain.fedscale, name) for name in names] == [0.9, 0.98, 0.3, 30, 0.9, 0.05]
    assert [getattr(pyramid.fedscale, name) for name in names] == [0.9, 0.95, 0.2, 10, 0.98, 0.7]
    config = make_config({}, {"sample_mode": "pyramidfl", "cut_off_util": 0.5})
    assert config.fedscale.cut_off_util == from_argv(to_argv(config)).fedscale.cut_off_util == 0.5


def test_hyperparameters_of_other_methods_bind_no_job() -> None:
    keys = {"method": "fedrolex", "fedrolex.levels": "fix"}
    config = make_config({}, {**keys, "fedmd.groups": [1, 2], "heterofl.levels": "groups"})
    assert config.method_params() == {"levels": "fix"}
    assert config.decisive() == make_config({}, keys).decisive()
    assert config.decisive()["fedrolex.levels"] == "fix"
    assert config.echo()["fedmd.groups"] == [1, 2]  # what was given is on record all the same
    assert decisive(config.echo()) == config.decisive()


def test_only_settings_that_decide_the_result_are_decisive() -> None:
    base = make_config({}, {"rounds": 3}).decisive()
    assert make_config({"worker_ips": ["a:[7]"]}, {"rounds": 9, "ps_port": 4000, "job_name": "x"}).decisive() == base
    assert make_config({}, {"rounds": 3, "conf_path": "/home/of/another/machine"}).decisive() == base
    assert make_config({}, {"rounds": 3, "seed": 2}).decisive() == {**base, "seed": 2}
    assert base == json.loads(json.dumps(base))


@pytest.mark.parametrize(
    ("policy", "method"), [("fed-prox", "fedprox"), ("fed-yogi", "fedyogi"), ("q-fedavg", "qfedavg"), (None, "fedavg")]
)
def test_fedscales_gradient_policy_names_a_method(policy: str | None, method: str) -> None:
    assert make_config({}, {"gradient_policy": policy}).job.method == method


def test_digits_behind_a_zero_are_text_or_a_decimal_number(tmp_path: Path) -> None:
    keys = "{job_name: 0715}, {rounds: 010}, {seed: 012}, {learning_rate: 01}, {fedprox.mu: 010}, {x.y: [01]}"
    config = load_config(write(tmp_path, f"job_conf: [{keys}]\n"), ["time_stamp=0930", "batch_size=020"])
    args = config.fedscale
    assert (args.job_name, args.time_stamp) == ("0715", "0930")
    assert (args.rounds, args.batch_size, config.job.seed, args.learning_rate) == (10, 20, 12, 1.0)
    assert config.params == {"fedprox.mu": 10, "x.y": [1]}
    again = from_argv(to_argv(config))
    assert (again.fedscale.job_name, again.params) == ("0715", config.params)


BAD = [
    ("job_conf:\n  - rounds: 3\n bad", "not valid YAML: "),
    ("just text", "must hold keys"),
    ("job_conf: 3\n", "list of one-key maps"),
    ("job_conf:\n  - 3\n", "list of one-key maps, as in '- rounds: 100'; it has 3"),
    ("job_conf:\n  - rounds:4\n", "it has 'rounds:4', without a space behind the colon"),
    ("ps_port: auto\njob_conf: []\n", "ps_port is a job_conf key; write it below job_conf, as in '- ps_port: …'"),
    ("seed: 3\njob_conf: []\n", "seed is a job_conf key; write it below job_conf"),
    ("job_config:\n  - rounds: 4\n", "unknown key 'job_config'; did you mean 'job_conf'"),
    ("ps_ip: 127.0.0.1\n", "has no job_conf, the list of the job's keys"),
    ("", "must hold keys such as ps_ip and job_conf; it is empty"),
    ("job_con:\n  - rounds: 3\njob_conf: []\n", "unknown key 'job_con'; did you mean 'job_conf'"),
    ("job_conf:\n  - round: 3\n", "did you mean 'rounds'"),
    ("job_conf:\n  - record_internal: True\n", "did you mean 'record_internals'"),
    ("job_conf:\n  - rounds: many\n", "'rounds' is 'many'; it must be a whole number"),
    ("job_conf:\n  - rounds: 2.5\n", "must be a whole number"),
    ("job_conf:\n  - rounds: [1]\n", "must be a whole number"),
    ("job_conf:\n  - personalise_epochs: yes\n", "'personalise_epochs' is True; it must be a whole number"),
    ("job_conf:\n  - local_epochs: true\n", "'local_epochs' is True; it must be a whole number"),
    ("job_conf:\n  - stop_gain: true\n", "'stop_gain' is True; it must be a number"),
    ("job_conf:\n  - prox_mu: false\n", "'prox_mu' is False; it must be a number"),
    ("job_conf:\n  - gradient_policy: [fed-prox]\n", "gradient_policy ['fed-prox'] is not built; it may be fed-prox"),
    ("ps_ip: 10.0.0.1\njob_conf:\n  - ps_ip: 10.0.0.2\n", "10.0.0.1 beside job_conf and 10.0.0.2 below it; keep one"),
    ("job_conf:\n  - learning_rate: 0,05\n", "'0,05'; it must be a number, as in 0.05"),
    ("job_conf:\n  - ps_port: abc\n", "'ps_port' is 'abc'; it must be a whole number, or auto"),
    ("job_conf:\n  - ps_port: 29500.5\n", "'ps_port' is 29500.5; it must be a whole number, or auto"),
    ("job_conf:\n  - use_cuda: perhaps\n", "it must be True or False"),
    ("job_conf:\n  - rounds: 0\n", "must be above zero"),
    ("job_conf:\n  - learning_rate: .nan\n", "must be above zero"),
    ("job_conf:\n  - num_participants: -4\n", "must be above zero"),
    ("job_conf:\n  - use_cuda: maybe\n", "'use_cuda' is 'maybe'"),
    ("job_conf:\n  - seed: x\n", "'seed' is 'x'"),
    ("job_conf:\n  - test_split: 1.5\n", "'test_split' is 1.5"),
    ("job_conf:\n  - capacity_rule: fast\n", "'deadline' or 'computation'"),
    ("job_conf:\n  - model_zoo: none\n", "it may be torchcv"),
    ("job_conf:\n  - ps_port: 70000\n", "0..65535"),
    ("job_conf:\n  - data_dir: $NOWHERE_SET/x\n", "names $NOWHERE_SET"),
    ("job_conf:\n  - engine: tensorflow\n", "has only 'pytorch'"),
    ("job_conf:\n  - sample_mode: ort\n", "it may be random, oort, pyramidfl; did you mean 'oort'?"),
    ("job_conf:\n  - clip_bound: 1.5\n", "'clip_bound' is 1.5; it must lie in 0..1"),
    ("job_conf:\n  - exploration_decay: .nan\n", "it must lie in 0..1"),
    ("job_conf:\n  - round_threshold: -1\n", "it must lie in 0..100"),
    ("job_conf:\n  - pacer_step: 0\n", "it must be at least 1"),
    (
        "job_conf:\n  - gradient_policy: fed-yogy\n  - method: fedavg\n",
        "is not built; it may be fed-prox, fed-yogi, q-fedavg; did",
    ),
    ("job_conf:\n  - decay_factor: 1.5\n", "key 'decay_factor' is 1.5; it must lie in 0..1"),
    ("job_conf:\n  - decay_factor: 0\n", "key 'decay_factor' is 0.0; it must be above zero"),
    ("job_conf:\n  - overcommitment: 0.5\n", "key 'overcommitment' is 0.5; it must be at least 1"),
    ("job_conf:\n  - overcommitment: .nan\n", "it must be at least 1"),
    ("job_conf:\n  - overcommitment: .inf\n", "it must be at least 1"),
    ("job_conf:\n  - round_penalty: .inf\n", "it must lie in 0..100"),
    ("job_conf:\n  - blacklist_rounds: -2\n", "it must be at least -1"),
    ("job_conf:\n  - min_learning_rate: .nan\n", "it must be at least 0"),
    ("job_conf:\n  - min_learning_rate: -1\n", "'min_learning_rate' is -1.0; it must be at least 0"),
    ("job_conf:\n  - proxy_mu: -0.1\n", "'proxy_mu' is -0.1; it must be at least 0"),
    ("job_conf:\n  - qfed_q: .nan\n", "'qfed_q' is nan; it must lie in 0..100"),
    ("job_conf:\n  - yogi_eta: -1\n", "'yogi_eta' is -1.0; it must be above zero"),
    ("job_conf:\n  - yogi_tau: .nan\n", "'yogi_tau' is nan; it must be above zero"),
    ("job_conf:\n  - yogi_beta: .nan\n", "'yogi_beta' is nan; it must be at least 0 and below 1"),
    ("job_conf:\n  - yogi_beta2: 1\n", "'yogi_beta2' is 1.0; it must be at least 0 and below 1"),
    ("job_conf:\n  - weight_decay: .nan\n", "'weight_decay' is nan; it must be a finite number"),
    ("job_conf:\n  - clock_factor: -.inf\n", "'clock_factor' is -inf; it must be a finite number"),
    ("job_conf:\n  - pacer_rule: up\n", "'falls' or 'flat'"),
    ("job_conf:\n  - pyramidfl_dropout_high: 1.1\n", "less than or equal to 1"),
    ("job_conf:\n  - gradient_policy: fed-sgd\n", "fed-prox, fed-yogi, q-fedavg"),
    ("worker_ips:\n  - 'localhost:'\njob_conf: []\n", "write it as host:[n]"),
    ("worker_ips:\n  - 'localhost:[__import__(\"os\")]'\njob_conf: []\n", "write it as host:[n]"),
    ("use_container: docker\njob_conf: []\n", "use_container"),
]


@pytest.mark.parametrize(("text", "sentence"), BAD)
def test_bad_configurations_are_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(UserError) as raised:
        load_config(write(tmp_path, text))
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("override", "sentence"), [("rounds", "key=value"), ("=3", "key=value"), ("rouns=3", "did you")]
)
def test_bad_overrides_are_one_sentence(tmp_path: Path, override: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        load_config(write(tmp_path, HEAD + "job_conf: []\n"), [override])


def test_a_missing_configuration_names_the_shipped_ones() -> None:
    with pytest.raises(UserError, match="fedavg --on digits"):
        load_config("quickstrat")


def test_a_shipped_configuration_is_found_by_its_name() -> None:
    config = load_config("quickstart")
    assert config.source == shipped_configs()["quickstart"]
    assert all(path.is_file() for path in config.entry_paths())


def test_the_parser_is_read_without_its_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setattr(sys, "argv", ["x", "--rounds", "not a number"])
    assert compat.fedscale_parser().get_default("rounds") == 50


@pytest.mark.parametrize("value", [0, -1, 2.5, "many", True])
def test_a_cohort_size_is_auto_or_a_number(value: object) -> None:
    with pytest.raises(UserError, match=r"'cohort_size' is .*; it should be auto, or a whole number from 1$"):
        make_config({}, {"cohort_size": value})
    assert [make_config({}, {"cohort_size": good}).job.cohort_size for good in (1, "8", "auto")] == [1, 8, "auto"]


def test_what_is_wrong_on_the_command_line_is_said_of_it() -> None:
    for override, sentence in (
        ("num_participant=5", "--set num_participant: unknown job_conf key"),
        ("learning_rate=abc", "--set learning_rate: key 'learning_rate' is 'abc'"),
        ("cohort_size=0", "--set cohort_size: key 'cohort_size'"),
    ):
        with pytest.raises(UserError, match=sentence):
            load_config("quickstart", [override])


def test_a_top_level_key_among_the_jobs_keys_is_told_its_place(tmp_path: Path) -> None:
    path = write(tmp_path, "job_conf:\n  - worker_ips: ['localhost:[1]']\n")
    with pytest.raises(UserError, match=": worker_ips is no job_conf key; write it beside job_conf, at the left"):
        load_config(path)


def test_an_entry_of_an_earlier_release_is_told_its_new_name() -> None:
    with pytest.raises(UserError, match=r"'methods/fedavg.py' is not .*; name entry/aggregator.py and entry/executor"):
        entry_path("fedscale_ext", "methods/fedavg.py")
    with pytest.raises(UserError, match=r"'gone.py' is not .*; set exp_path to the folder"):
        entry_path("fedscale_ext", "gone.py")


def test_how_ssh_logs_in_can_be_overridden_key_by_key(tmp_path):
    conf = tmp_path / "job.yml"
    conf.write_text("auth:\n  ssh_user: fed\n  ssh_config: there\njob_conf: []\n")
    auth = load_config(conf, ["auth.ssh_user=me", "auth.ssh_private_key=~/key"]).cluster.auth
    assert (auth.ssh_user, auth.ssh_private_key, auth.ssh_config) == ("me", "~/key", "there")
    conf.write_text("job_conf: []\n")
    assert load_config(conf, ["auth.ssh_user=me", "auth.ssh_user=null"]).cluster.auth.ssh_user is None
    with pytest.raises(UserError, match=r"^--set auth: key 'auth.ssh_key' is 'k'; "):
        load_config(conf, ["auth.ssh_key=k"])
