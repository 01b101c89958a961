"""``fedscale models``: costs on a data set, and what each model has."""

import re

from fedscale_ext import models


def test_costs_are_those_of_the_data_sets_samples(call):
    code, out, err = call("models", "--data", "femnist")
    assert code == 0, err
    cost = models.cost(models.named_spec("cnn_small", (1, 28, 28), 62))
    assert re.search(rf"^cnn_small +cnn +{cost.parameters:,} +{cost.forward_macs / 1e6:.3g}$", out, re.M)
    assert "on femnist: samples of 1x28x28, 62 classes" in out


def test_what_a_model_has_and_what_it_cannot_read_is_told(call):
    _, out, _ = call("models")
    for line in ("resnet18 .* cells", "multi_exit_cnn10 .* 10 exits", "cnn_tiny .* paths"):
        assert re.search(f"^{line}$", out, re.M), line
    for plain in ("single_exit_cnn10", "first_exit_cnn10", "cnn_tiny_smallest", "cnn_small", "torchvision_resnet18"):
        assert re.search(rf"^{plain} +\w+ +[\d,]+ +[\d.,]+$", out, re.M), plain
    assert "cannot read such samples: cnn_s, cnn_s_largest, cnn_s_smallest" in out
