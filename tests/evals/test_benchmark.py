"""The benchmark's plan is fair, and its page says what its lines say."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evals.benchmark import fitted, pages, run, standing
from evals.benchmark.__main__ import main
from evals.benchmark.devices import KINDS, SLOWEST_MS, kinds_of, write_devices
from evals.benchmark.methods import EQUAL, ROWS, Row, groups, rows_of, values
from evals.benchmark.networks import EXITS
from evals.benchmark.picture import picture
from evals.benchmark.tasks import BENCHMARK, TASKS
from evals.paper.measurement import Measurement
from evals.paper.runs import Records
from fedscale_ext import models
from fedscale_ext.cli.main import main as command
from fedscale_ext.config.methods import method_names
from fedscale_ext.core.errors import UserError
from fedscale_ext.data.importing import importers
from fedscale_ext.models.multi_exit.family import prefix
from fedscale_ext.models.supernet import costs
from fedscale_ext.submodels import narrowed, rate_of


def test_kinds_of_devices_are_equally_many_and_follow_the_seed(tmp_path: Path) -> None:
    kinds = kinds_of(32, 1)
    assert np.bincount(kinds).tolist() == [7, 7, 6, 6, 6] == groups(32)
    assert not np.array_equal(kinds, kinds_of(32, 2)) and np.array_equal(kinds, kinds_of(32, 1))
    lines = write_devices(["a, b", "ü"], 1, tmp_path / "d" / "x.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "client_id,computation,communication" and lines[1].startswith('"a, b",')
    speeds = {float(line.rpartition(",")[0].rpartition(",")[2]) for line in lines[1:]}
    assert speeds <= {SLOWEST_MS / 2**kind for kind in range(KINDS)}


@pytest.mark.parametrize("name", TASKS)
def test_every_kind_of_device_affords_a_network_of_every_approach(name: str) -> None:
    task = TASKS[name]
    specs = task.networks.specs(task.shape, task.classes)
    macs = {network: models.cost(spec).forward_macs for network, spec in specs.items()}
    budgets = fitted.budgets(specs["weakest"])
    assert budgets == [macs["weakest"] * 2**kind for kind in range(KINDS)]
    for kind, budget in enumerate(budgets):
        assert macs[f"type{kind + 1}"] <= budget
        assert models.cost(prefix(specs["exits"], kind + 1)).forward_macs <= budget
    assert macs["small"] <= budgets[0] and models.cost(narrowed(specs["atoms"], 1 / 8)).forward_macs <= budgets[0]
    assert macs["exits"] <= macs["scaled"] <= budgets[-1] and EXITS == KINDS


@pytest.mark.parametrize("name", [name for name, task in TASKS.items() if task.networks.space])
def test_each_kind_of_device_affords_a_path_of_the_supernet(name: str) -> None:
    """Tiers' brackets are the budgets; FedorAS counts some per cent more than the MACs that bound a client."""
    task = TASKS[name]
    specs = task.networks.specs(task.shape, task.classes)
    first, *_, last = fitted.budgets(specs["weakest"])
    table = costs.tables(specs["space"], published=True)
    assert costs.path_cost(table, costs.cheapest_path(specs["space"])) < first
    assert 8 * first < costs.path_cost(table, costs.dearest_path(specs["space"])) <= last


def test_every_shipped_method_has_a_row() -> None:
    assert {row.method for row in ROWS.values()} == set(method_names())


def test_a_task_without_a_supernet_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="chars74k has no supernet yet, which fedoras searches"):
        ROWS["FedorAS"].job_keys(TASKS["chars"], tmp_path)


@pytest.mark.parametrize("name", TASKS)
def test_widths_are_the_largest_that_devices_afford(name: str) -> None:
    task = TASKS[name]
    spec = task.networks.specs(task.shape, task.classes)["large"]
    every = fitted.rates(spec)
    budgets = fitted.budgets(task.networks.specs(task.shape, task.classes)["weakest"])
    rates = fitted.width_rates(spec, budgets)
    for rate, budget in zip(rates, budgets, strict=True):
        assert models.cost(narrowed(spec, rate)).forward_macs <= budget
        wider = [models.cost(narrowed(spec, each)).forward_macs for each in every if each > rate]
        assert all(macs > budget for macs in wider)
    assert rates[0] < rates[-1] == 1.0


@pytest.mark.parametrize("name", TASKS)
def test_pruned_types_have_the_fitted_widths_and_all_clients(name: str, tmp_path: Path) -> None:
    task = TASKS[name]
    spec, known = task.networks.specs(task.shape, task.classes)["large"], values(task, tmp_path)
    whole = models.cost(spec).parameters
    assert [rate_of(spec, share * whole) for share in known["$shares"]] == known["$rates"]
    assert sum(known["$width_groups"]) == sum(known["$skeleton_groups"]) == task.clients
    assert len(known["$width_groups"]) == len(known["$shares"]) and len(set(known["$shares"])) == len(known["$shares"])


@pytest.mark.parametrize("name", TASKS)
def test_levels_of_scalefl_are_narrower_and_shorter_and_afforded(name: str) -> None:
    task = TASKS[name]
    specs = task.networks.specs(task.shape, task.classes)
    budgets = fitted.budgets(specs["weakest"])
    widths = fitted.exit_widths(specs["scaled"], budgets)
    assert widths == sorted(widths) and widths[0] < widths[-1] == 1.0
    for exits, (rate, budget) in enumerate(zip(widths, budgets, strict=True), start=1):
        assert models.cost(prefix(narrowed(specs["scaled"], rate), exits)).forward_macs <= budget


def test_a_skeleton_is_the_largest_whose_step_is_within_a_budget() -> None:
    """The forward pass, a third of a step, is whole: a budget below it has the smallest skeleton."""
    task = TASKS["har"]
    spec = task.networks.specs(task.shape, task.classes)["large"]
    cost = models.cost(spec)
    shares = fitted.parameter_shares(spec, fitted.rates(spec))
    assert fitted.skeleton_shares(spec, [1, cost.forward_macs]) == [shares[0], 1.0]
    (part,) = fitted.skeleton_shares(spec, [round(0.7 * cost.forward_macs)])
    assert shares[0] < part < 1.0


@pytest.mark.parametrize("label", ROWS)
def test_rows_name_their_methods_own_keys(label: str, tmp_path: Path) -> None:
    row = ROWS[label]
    keys = row.job_keys(TASKS["har"], tmp_path)
    assert row.method in method_names()
    assert all(key.startswith(f"{row.method}.") for key in keys if "." in key)
    assert not any(str(value).startswith("$") for value in keys.values())


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("data_seed=7", "--set data_seed: all rows of the benchmark have the same data_seed; leave it out"),
        ("device_conf_file=resampled", "the same device_conf_file"),
        ("rounds=2", "the same rounds"),
        ("stop_macs=1e14", "the same stop_macs"),
        ("seed=3", "the same seed"),
        ("learning_rate=0.5", "name yours with --rate"),
    ],
)
def test_a_row_of_ones_own_cannot_leave_what_all_rows_share(setting: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        rows_of("fedavg", ["model=$large", setting])


def test_what_all_rows_share_has_the_keys_of_their_jobs(tmp_path: Path) -> None:
    """A key that the benchmark gives a job by its task or seed would change the row without another plan."""
    shared = set(TASKS["har"].keys) - {"local_steps", "batch_size"}
    assert shared | {"data_set", "data_dir", "data_seed", "device_conf_file", "stop_macs", "eval_macs"} <= EQUAL


def test_a_method_of_ones_own_has_a_row(tmp_path: Path) -> None:
    ((label, row),) = rows_of("heterofl", ["model=$large", "heterofl.rates=$falling_rates", "proxy_mu=0.1"]).items()
    assert label == "heterofl (model=$large, rates=$falling_rates, proxy_mu=0.1)"
    assert rows_of("heterofl", []) == {"HeteroFL": ROWS["HeteroFL"]}
    keys = row.job_keys(TASKS["har"], tmp_path)
    assert keys["heterofl.rates"] == ROWS["HeteroFL"].job_keys(TASKS["har"], tmp_path)["heterofl.rates"]
    assert keys["proxy_mu"] == 0.1 and keys["model"].endswith("large.json")
    mine = Measurement("har", "benchmark", 1, {"row": "mine", "learning_rate": 0.1}, lines()[0].figures)
    assert any(line.startswith("| mine | your own |") for line in pages.results_page([*lines(), mine]).splitlines())


@pytest.mark.parametrize("key", ["fednas.search_rounds", "$.search_rounds"])
def test_settings_of_ones_own_stand_above_a_tasks_stages(key: str, tmp_path: Path) -> None:
    (row,) = rows_of("fednas", ["model=$space", f"{key}=7"]).values()
    assert row.job_keys(TASKS["har"], tmp_path)["fednas.search_rounds"] == 7
    assert ROWS["FedNAS"].job_keys(TASKS["har"], tmp_path)["fednas.search_rounds"] == 3


def test_a_setting_that_is_no_yaml_is_refused() -> None:
    with pytest.raises(UserError, match=r"--set model=\[a: \[a is no YAML"):
        rows_of("fedavg", ["model=[a"])


def test_shared_files_are_replaced_and_not_rewritten_in_place(tmp_path: Path) -> None:
    """Other workers may be reading them."""
    har = TASKS["har"]

    def inodes() -> dict[Path, int]:
        write_devices(["a", "b"], 1, tmp_path / "devices.csv")
        har.networks.written(har.shape, har.classes, tmp_path)
        return {path: path.stat().st_ino for path in tmp_path.iterdir()}

    before, after = inodes(), inodes()
    assert len(before) > 5 and before.keys() == after.keys()
    assert all(after[path] != inode for path, inode in before.items())


def test_a_key_that_follows_the_learning_rate_counts_in_the_plan_by_its_factor() -> None:
    row, other = ROWS["FedMask"], replace(ROWS["FedMask"], rate_keys={"fedmask.lr": 1.0})

    def plan(each: Row, rate: float) -> str:
        return run.plan({"method": "fedmask", "learning_rate": rate, "fedmask.lr": 1000 * rate}, each)

    assert row.rate_keys == {"fedmask.lr": 1000}
    assert plan(row, 0.1) == plan(row, 0.3) != plan(other, 0.1)


def test_a_method_that_is_not_installed_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--tasks", "har", "--method", "heterofi"]) == 2
    assert main(["--tasks", "har", "--method", "heterofl", "--set", "model"]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert "heterofl" in first and second == "error: --set model is no KEY=VALUE"


def lines() -> list[Measurement]:
    figures = {"on all %": 1.0, "worst tenth %": 2.0, "client TMACs": 1.0, "up MB": 3.0, "down MB": 3.0,
               "device MB": 0.2, "virtual h": 0.1, "rounds": 4.0, "server TMACs": 0.004, "server s": 0.5,
               "own % at 25": 20.0, "own % at 50": 40.0}  # fmt: skip
    return [
        Measurement("har", "benchmark", seed, {"row": label, "learning_rate": 0.1, "method": ROWS[label].method},
                    {**figures, "own %": accuracy, "own % at 100": accuracy})
        for label, values in {"HeteroFL": (50.0, 70.0), "FjORD": (60.0, 60.0), "local only": (90.0, 90.0)}.items()
        for seed, accuracy in enumerate(values, start=1)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--tasks", "mnist", "--seeds", "1", "4"], "error: seed 4 is none of mnist's table: its seeds are 1 to 3"),
        (
            ["--tasks", "chars", "--method", "heterofl"],
            "error: chars has no row of HeteroFL: its rows are local only, ",
        ),
    ],
)
def test_seeds_and_rows_that_a_task_does_not_have_are_refused(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err.startswith(sentence)


def test_a_file_for_the_results_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rows").touch()
    assert main(["--tasks", "har", "--show", "--results", str(tmp_path / "rows" / "below")]) == 2
    assert capsys.readouterr() == ("", f"error: {tmp_path / 'rows'} is a file: name a folder for the results\n")


def test_ranks_are_paired_by_seed_and_leave_floors_out() -> None:
    rows = standing.entries(lines(), "har")
    ranked = standing.ranks(rows)
    assert ranked.keys() == {"HeteroFL", "FjORD"}
    assert ranked["HeteroFL"].tolist() == [2.0, 1.0] and ranked["FjORD"].tolist() == [1.0, 2.0]


def test_a_table_has_methods_first_and_floors_below() -> None:
    shown = [line for line in pages.results_page(lines()).splitlines() if line.startswith("| ")]
    names = ["| method", "| ---", "| HeteroFL", "| FjORD", "| local only"]
    assert [line.split(" | ")[0] for line in shown] == names * 2
    assert "| 1.5 (1.0 to 2.0) | 60.0 ± 14.1 |" in shown[2]


def test_a_row_with_fewer_seeds_takes_no_seed_from_the_ranks_of_others() -> None:
    one = Measurement("har", "benchmark", 1, {"row": "Hermes", "learning_rate": 0.1}, lines()[0].figures)
    ranked = standing.ranks(standing.entries([*lines(), one], "har"))
    assert "Hermes" not in ranked and all(len(each) == 2 for each in ranked.values())


def test_jobs_with_another_learning_rate_or_plan_are_not_averaged_with_a_rows() -> None:
    again = replace(lines()[0], keys={**lines()[0].keys, "learning_rate": 0.3}, figures={"own %": 10.0})
    earlier = replace(lines()[0], keys={**lines()[0].keys, "plan": "earlier"}, figures={"own %": 20.0})
    rows = {row.title: row for row in standing.entries([*lines(), again, earlier], "har")}
    assert rows["HeteroFL"].values(standing.OWN).tolist() == [50.0, 70.0] and rows["HeteroFL"].rate == 0.1
    assert rows["HeteroFL, learning rate 0.3"].values(standing.OWN).tolist() == [10.0]
    assert standing.ranks(list(rows.values())).keys() == {"HeteroFL", "FjORD"}  # the other has one seed
    assert rows.keys() == {"HeteroFL", "HeteroFL, learning rate 0.3", "FjORD", "local only"}


def test_seeds_that_choose_learning_rates_are_no_results() -> None:
    chosen = Measurement("har", "benchmark", max(TASKS["har"].seeds) + 1,
                         {"row": "HeteroFL", "learning_rate": 0.3}, {"own %": 99.0})  # fmt: skip
    (row,) = [each for each in standing.entries([*lines(), chosen], "har") if each.label == "HeteroFL"]
    assert row.values("own %").tolist() == [50.0, 70.0] and row.rate == 0.1


def test_pages_are_those_of_the_recorded_lines() -> None:
    """Nothing is written by hand."""
    for path, text in pages.pages(list(Records.load(BENCHMARK.folder).runs.values())).items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: python -m evals.benchmark.pages writes it"


def test_a_pictures_legend_is_whole_with_all_families(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedscale_ext.report.plots import figure_files

    inside: list[bool] = []

    def measure(figure: Any) -> str:
        legend = figure.axes[0].get_legend()
        box = legend.get_window_extent(figure.canvas.get_renderer())
        inside.append(box.x0 >= 0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1)
        assert len({handle.get_color() for handle in legend.legend_handles}) == len(legend.get_texts())
        return ""

    monkeypatch.setattr(figure_files, "svg", measure)
    figures = lines()[0].figures
    every = [Measurement("har", "benchmark", 1, {"row": row, "learning_rate": 0.1}, figures) for row in [*ROWS, "mine"]]
    picture(every, "har")
    assert inside == [True]


def test_an_interrupt_of_the_import_ends_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    sources = tmp_path / "sources"
    sources.mkdir()
    np.savez(sources / "uci_har.npz", x_train=np.zeros(1), y_train=np.zeros(1))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDSCALE_EXT_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(importers, "import_npz", interrupted)
    monkeypatch.setattr(sys, "argv", ["fedscale", "benchmark", "fedavg", "--sources", str(sources)])
    with pytest.raises(SystemExit) as end:
        command()
    sentence = "fedscale: the benchmark was stopped; the same command continues it\n"
    assert (end.value.code, *capsys.readouterr()) == (130, "", sentence)
    code = main(["--tasks", "har", "--method", "fedavg", "--seeds", "1", "--sources", str(sources)])
    assert (code, *capsys.readouterr()) == (130, "", sentence.replace("fedscale", "error"))
    assert not (tmp_path / "data").exists()


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt
