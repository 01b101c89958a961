import json

import pytest

from evals.hypemefed import hypernetwork_cost as cost
from fedscale_ext.methods.hypemefed.factorisation import matrix_shape


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(cost, "MODELS", dict.fromkeys(cost.MODELS, ("multi_exit_vgg_small", (1, 16, 16), 4, (1, 1, 1))))
    monkeypatch.setattr(cost, "EPOCHS", 2)


def test_a_cell_is_a_whole_round(small):
    figures = cost.cell("STL10", "k=25", "float32")
    assert figures["parameters"] < 1_000_000 and figures["step_cpu_s"] > 0 and figures["process_mb"] > 0
    assert figures["epoch_s"] <= figures["step_s"]


def test_the_floor_counts_every_product_of_training(small):
    figures = cost.cell("STL10", "k=200", "float32", threads=2)
    full, gflop = cost.shapes("STL10", 3), 0.0
    for block, holders in ((2, 2), (3, 1)):
        sides = [matrix_shape(full[f"block{b}.conv1.weight"]) for b in (block - 1, block)]
        k, (m, n) = min(sides[0]), sides[1]
        networks = sum(3 * out + 2 * into for into, out in zip(*sides, strict=True)) * 512 * k
        step = networks + 2 * k * m * n + 2 * k * k * (m + n)
        gflop += 2e-9 * step * holders * 2  # epochs
    assert figures["gflop"] == pytest.approx(gflop) and figures["core_gflops"] > 0


def test_parameters_at_the_papers_sizes():
    millions = {name: sum(cost.naive_parameters(name)) / 1e6 for name in cost.MODELS}
    assert millions == pytest.approx({"SVHN": 708.9, "STL10": 2835.6, "UniMiB": 2835.6, "ResNet-18": 6721.4}, abs=0.1)


def test_what_is_computed_is_what_would_be_built(small):
    assert sum(cost.naive_parameters("SVHN")) == cost.cell("SVHN", "naive", "float32")["parameters"]


def test_the_table_says_what_was_not_run(small, monkeypatch, tmp_path):
    monkeypatch.setattr(cost, "measured", lambda model, label, precision, repeats: {
        "model": model, "label": label, "precision": precision, "parameters": 1000 if label == "naive" else 10,
        **({"not_run": "needs 9 GiB", "needed_mb": 9216.0} if (model, label) == ("STL10", "naive") else
           {"peak_mb": 100.0, "process_mb": 512.0, "epoch_s": 2.0, "epoch_cpu_s": 1.0, "step_s": 4.0,
            "step_cpu_s": 3.0, "gflop": 500.0, "core_gflops": 100.0}),
    })  # fmt: skip
    monkeypatch.setattr("sys.argv", ["cost", "--out", str(tmp_path), "--plot", str(tmp_path / "hypernetwork_cost.png")])
    cost.main()
    text = (tmp_path / "hypernetwork_cost.md").read_text(encoding="utf-8")
    assert "| STL10 | naive | float32 | 0.00 | 0.00 | 9,216, computed | – not run | – | – |" in text
    assert "500 GFLOP of products, 5.0 s at the 100 GFLOP/s" in text
    assert "99.00 % fewer parameters" in text and "227.37 / 0.00" in text
    assert len(json.loads((tmp_path / "hypernetwork_cost.json").read_text(encoding="utf-8"))["rows"]) == 21
    assert (tmp_path / "hypernetwork_cost.png").stat().st_size > 1000
