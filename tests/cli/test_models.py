"""``fedscale models``: costs on a data set, and what each model has."""

import re

import numpy as np

from fedscale_ext import models


def unfit(out: str) -> set[str]:
    """The models that are told not to read such samples."""
    return set(out.partition("cannot read such samples:")[2].replace(",", " ").split())


def test_costs_are_those_of_the_data_sets_samples(call):
    code, out, err = call("models", "--data", "femnist")
    assert code == 0, err
    cost = models.cost(models.named_spec("cnn_small", (1, 28, 28), 62))
    assert re.search(rf"^cnn_small +cnn +{cost.parameters:,} +{cost.forward_macs / 1e6:.3g}$", out, re.M)
    assert "on femnist: samples of 1x28x28, 62 classes" in out


def test_a_folder_has_samples_of_its_own(call, tmp_path):
    samples = np.random.default_rng(1).integers(0, 256, (12, 3, 20, 24), dtype=np.uint8)
    np.savez(tmp_path / "d.npz", x=samples, y=np.arange(12) % 3, client=np.arange(12) % 2)
    folder = tmp_path / "mine"
    code, _, err = call("dataset", "import", tmp_path / "d.npz", "--data-set", "mine", "--test", "local", "-o", folder)
    assert code == 0, err
    code, out, err = call("models", "--data", folder)
    assert (code, err) == (0, "") and f"on {folder}: samples of 3x20x24, 3 classes" in out


def test_models_that_read_symbols_are_listed_for_texts_only(call, tmp_path):
    np.savez(tmp_path / "d.npz", x=np.zeros((6, 8, 8), np.uint8), y=np.arange(6) % 3, client=np.arange(6) % 2)
    folder = tmp_path / "mine"
    assert call("dataset", "import", tmp_path / "d.npz", "--data-set", "mine", "--test", "local", "-o", folder)[0] == 0
    for data in ("femnist", folder):
        _, out, _ = call("models", "--data", data)
        assert not re.search(r"^rnn\w* +supernet", out, re.M) and {"rnn", "rnn_positions_smallest"} <= unfit(out)
    _, out, _ = call("models", "--data", "shakespeare")
    listed = re.findall(r"^(\w+) +\w+ +[\d,]+ +[\d.,]+", out, re.M)
    assert len(listed) == 6 and all(name.startswith("rnn") for name in listed)


def test_what_is_neither_a_data_set_nor_a_folder_is_one_sentence(call):
    code, out, err = call("models", "--data", "femnistt")
    assert (code, out) == (2, "") and "there is no data set and no folder 'femnistt'; did you mean 'femnist'?" in err


def test_what_a_model_has_and_what_it_cannot_read_is_told(call):
    _, out, _ = call("models")
    for line in ("resnet18 .* cells", "multi_exit_cnn10 .* 10 exits", "cnn_tiny .* paths"):
        assert re.search(f"^{line}$", out, re.M), line
    for plain in ("single_exit_cnn10", "first_exit_cnn10", "cnn_tiny_smallest", "cnn_small", "torchvision_resnet18"):
        assert re.search(rf"^{plain} +\w+ +[\d,]+ +[\d.,]+$", out, re.M), plain
    assert {"cnn_s", "cnn_s_largest", "cnn_s_smallest"} <= unfit(out)
