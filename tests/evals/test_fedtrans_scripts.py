"""FedTrans's tables and figures: what they run, and at which sizes."""

import importlib
import json
from pathlib import Path

import pytest

from evals.fedtrans import fig1b, own_settings, readings, settings, table3
from evals.fedtrans.arms import all_suites
from evals.fedtrans.settings import PAPER
from evals.paper import plots
from evals.paper.engine import planned
from evals.paper.experiment import Arm, Run
from evals.paper.job_keys import ModelOf, WeightsOf, recorded, resolved
from evals.paper.output import aggregated, section
from evals.paper.runs import Table
from fedscale_ext.config.job_config import load_config
from fedscale_ext.config.method_params import make_params
from fedscale_ext.config.methods import method_class
from fedscale_ext.server.method_base.requirements import check_local_training

SCRIPTS = (
    "table1 table2 table3 table4 table5 table6 fig1b fig2 fig6 fig7 fig8 fig9 fig10a fig10b fig11a fig11b fig12 fig13 "
    "regime base_size eta dilution readings own_settings"
).split()


@pytest.mark.parametrize("scale", ["smoke", "small", "paper"])
@pytest.mark.parametrize("name", SCRIPTS)
def test_every_arm_is_a_job_that_its_method_understands(name: str, scale: str) -> None:
    arms = planned(PAPER, importlib.import_module(f"evals.fedtrans.{name}").EXPERIMENT, scale, None)
    assert arms and len({(arm.label, data) for arm, data in arms}) == len(arms)
    trained = {(data, json.dumps(recorded(arm.keys), sort_keys=True)) for arm, data in arms}
    twice = {"fig11a", "fig11b", "fig12", "eta"}  # whose default stands beside too
    assert len(arms) - len(trained) == (name in twice)
    labels = {arm.label for arm, _ in arms}
    for arm, data in arms:
        keys = resolved({**PAPER.keys_of(data, scale), **arm.keys})
        if isinstance(model := keys.get("model"), ModelOf):
            assert model.arm in labels
            del keys["model"]
            assert keys.pop("initial_weights", WeightsOf(model)) == WeightsOf(model)
        method = str(keys["method"])
        settings = [
            f"{key}={json.dumps(value)}" for key, value in keys.items() if key.partition(".")[0] in (key, method)
        ]
        make_params(method_class(method).Params, load_config(str(PAPER.folder / "job.yml"), settings))


def test_readings_have_a_row_for_whole_blocks_on_a_resnet_and_for_a_clients_history() -> None:
    arms = {tuple(arm.keys.items())[1:]: arm for arm in readings.EXPERIMENT.arms}
    assert (("fedtrans.utility", "client_history"),) in arms
    whole = arms[(("fedtrans.widen", "block"),)]
    spec = json.loads(Path(PAPER.keys_of(whole.data, "small")["model"]).read_text(encoding="utf-8"))
    assert spec["family"] == "resnet"  # other families know no whole blocks


@pytest.mark.parametrize("scale", ["smoke", "small", "paper"])
def test_baselines_with_their_own_settings_train_by_epochs(scale: str) -> None:
    for arm, data in planned(PAPER, own_settings.EXPERIMENT, scale, None):
        keys = resolved({**PAPER.keys_of(data, scale), **arm.keys, "model": "resnet18_speech"})
        job = [f"{key}={json.dumps(value)}" for key, value in keys.items() if "." not in key]
        config = load_config(str(PAPER.folder / "job.yml"), job)
        assert config.fedscale.local_steps == (2 if scale == "smoke" and "own" not in arm.label else 20)
        check_local_training(config, method_class(str(keys["method"])))  # epochs and steps are not both given
        assert (config.job.local_epochs is not None) == arm.label.endswith("its own")


@pytest.mark.parametrize("scale", ["small", "paper"])
@pytest.mark.parametrize("name", settings.DATA)
def test_sizes_at_which_claims_are_decided(name: str, scale: str) -> None:
    keys = PAPER.keys_of(name, scale)
    window = keys["fedtrans.gamma"] + keys["fedtrans.delta"]
    if scale == "small":
        assert window >= keys["rounds"] / 5
        assert keys["num_participants"] >= 10 * (1 + (keys["rounds"] - 1) // window)  # ten for each model
    else:
        assert keys["fedtrans.beta"] == 0.003


def test_the_ablations_are_the_papers_rows() -> None:
    rows = {arm.label: dict(arm.keys) for arm in table3.ARMS}
    assert rows["FedTrans-lsw"] == {"method": "fedtrans", "fedtrans.cell_selection": "random",
                                    "fedtrans.sharing": "none", "fedtrans.warmup": "reinit"}  # fmt: skip
    assert rows["FedTrans-lswd"]["fedtrans.sharing"] == "soft"
    assert {arm.label for arm in all_suites()} >= {"FedTrans", "HeteroFL", "SplitMix", "FLuID"}


def test_ties_for_the_best_model_are_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    accuracies = {"a": [1.0, 0.5, np.nan, 0.2], "b": [1.0, 0.6, 0.1, 0.1]}
    monkeypatch.setattr(plots, "client_accuracies", lambda log_dir: np.array(accuracies[str(log_dir)]))
    runs = [Run(Arm(name), "har", 1, Path(name)) for name in accuracies]
    assert plots.best_shares(runs) == {"a": pytest.approx(0.5), "b": pytest.approx(0.5)}
    assert fig1b.EXPERIMENT.shares is plots.best_shares
    rows = aggregated([*runs, Run(Arm("c"), "har", 1, None, failed="not run")])
    table = "\n".join(
        section(fig1b.EXPERIMENT, "fig1b_small", Table("fig1b", "small", shares=plots.best_shares(runs)), rows)
    )
    assert "|  | share of clients % |" in table and "| a | 50 |" in table
    assert "\nNot run: `c`." in table
    assert aggregated(runs)[0]["seeds"] == [1]
