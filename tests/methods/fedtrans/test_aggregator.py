"""FedTrans as a whole: what small jobs wrote down, computed again from the paper's equations alone."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedscale_ext

GROW = {"fedtrans.gamma": 1, "fedtrans.delta": 2, "fedtrans.beta": 1e9}
JOB = {"method": "fedtrans", "rounds": 8, "num_participants": 6, "local_steps": 1, "eval_interval": 100,
       "record_internals": True, **GROW}  # fmt: skip


def run(tiny_femnist: Path, folder: Path, **keys: Any) -> dict[str, Any]:
    conf = folder / "job.yml"
    conf.write_text("job_conf:\n  - data_set: femnist\n  - model: nasbench201_base\n  - batch_size: 5\n"
                    "  - filter_less: 0\n  - overcommitment: 1.0\n  - use_cuda: False\n")  # fmt: skip
    settings = {
        **JOB,
        "data_dir": str(tiny_femnist),
        "log_path": str(folder),
        "job_name": "j",
        "time_stamp": "t",
        **keys,
    }
    summary = fedscale_ext.run(conf, **settings)
    lines = (folder / "logs" / "j" / "t" / "internals.jsonl").read_text().splitlines()
    return {"summary": summary, "rounds": [json.loads(line) for line in lines]}


@pytest.fixture(scope="module")
def job(tiny_femnist: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run(tiny_femnist, tmp_path_factory.mktemp("default"))


@pytest.fixture(scope="module")
def ablated(tiny_femnist: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Table 3's last row (-lswd, undecayed and unweighted sharing) with losses of all participants."""
    switches = {"cell_selection": "random", "similarity": "one", "warmup": "reinit", "decay": False, "doc_loss": "all"}
    folder = tmp_path_factory.mktemp("ablated")
    return run(tiny_femnist, folder, **{f"fedtrans.{name}": value for name, value in switches.items()})


def births(job: dict[str, Any]) -> list[int]:
    return [model["lineage"]["birth"] for model in job["summary"]["models"]]


def test_models_are_added_one_by_one_each_larger_than_its_parent(job: dict[str, Any]) -> None:
    models = job["summary"]["models"]
    assert [model["key"] for model in models] == [f"m{k}" for k in range(len(models))]
    assert len(models) >= 3
    macs = [model["cost"]["forward_macs"] for model in models]
    assert macs == sorted(set(macs))
    assert [model["lineage"]["parent"] for model in models] == [None, *(f"m{k}" for k in range(len(models) - 1))]
    created = {entry["child"]["key"]: entry["round"] for entry in job["rounds"] if "child" in entry}
    assert [created[model["key"]] for model in models[1:]] == births(job)[1:]


def test_nobody_trains_or_is_served_a_model_above_its_capacity(job: dict[str, Any]) -> None:
    for entry in job["rounds"]:
        for client, model in entry["assignments"].items():
            assert model in entry["compatible"][client]
            incompatible = set(range(len(entry["probabilities"][client]))) - set(entry["compatible"][client])
            assert all(entry["probabilities"][client][k] == 0 for k in incompatible)
    assert any(len(fits) < len(entry["similarity"]) for entry in job["rounds"] for fits in entry["compatible"].values())


@pytest.mark.parametrize("which", ["job", "ablated"])
def test_equations_2_to_4_from_what_was_recorded(which: str, request: pytest.FixtureRequest) -> None:
    utilities: dict[str, list[float]] = {}
    for entry in request.getfixturevalue(which)["rounds"]:
        losses = np.array(list(entry["losses"].values()))
        sims = np.array(entry["similarity"])
        for client, loss in entry["losses"].items():
            # a client never seen has utilities of 0; a child took over its parent's, and all after it that one's
            u = utilities.get(client, [0.0])
            u = np.array(u + [u[-1]] * (len(sims) - len(u)))
            fits = entry["compatible"][client]
            powers = np.zeros(len(sims))
            powers[fits] = np.exp(u[fits] - u[fits].max())
            np.testing.assert_allclose(entry["probabilities"][client], powers / powers.sum(), rtol=1e-9)
            standard = (loss - losses.mean()) / losses.std()
            assert entry["standardised_losses"][client] == pytest.approx(standard, rel=1e-9)
            u[fits] -= standard * sims[fits, entry["assignments"][client]]
            np.testing.assert_allclose(entry["utilities"][client], u, rtol=1e-9, atol=1e-12)
            utilities[client] = u.tolist()


def test_equation_5s_coefficients_from_similarities_and_rounds(job: dict[str, Any]) -> None:
    for entry in job["rounds"]:
        sims = np.array(entry["similarity"])
        assert np.diag(sims).tolist() == [1.0] * len(sims)
        for j, row in enumerate(entry["mixing"]):
            decay = 0.98 ** entry["round"]
            share = np.array([decay * sims[i, j] if i < j else float(i == j) for i in range(len(sims))])
            np.testing.assert_allclose(row, share / share.sum(), rtol=1e-9)
            assert sum(row) == pytest.approx(1)


def test_equation_1_from_the_losses_of_the_newest_models_participants(job: dict[str, Any], tiny_femnist: Path) -> None:
    def trained_newest(entry: dict[str, Any], newest: int) -> set[str]:
        return {client for client, model in entry["assignments"].items() if model == newest}

    check_doc(job, trained_newest, train_sizes(tiny_femnist))


def train_sizes(folder: Path) -> dict[str, int]:
    rows = (folder / "client_data_mapping" / "train.csv").read_text().splitlines()[1:]
    owners = [row.split(",")[0] for row in rows]
    return {str(number): owners.count(name) for number, name in enumerate(dict.fromkeys(owners), 1)}


def check_doc(job: dict[str, Any], whose: Any, size: dict[str, int]) -> None:
    history: list[float] = []
    seen = 0
    for entry in job["rounds"]:
        newest = len(entry["similarity"]) - 1
        if newest in entry["assignments"].values():
            clients = sorted(whose(entry, newest), key=int)
            history.append(sum(entry["losses"][c] * size[c] for c in clients) / sum(size[c] for c in clients))
        if len(history) < 3:
            assert entry["doc"] is None
        else:
            assert entry["doc"] == pytest.approx((history[-3] - history[-1]) / 2, rel=1e-9)
            seen += 1
        if "child" in entry:
            assert entry["doc"] <= 1e9
            history = []
    assert seen >= 2


def test_doc_of_all_participants(ablated: dict[str, Any], tiny_femnist: Path) -> None:
    check_doc(ablated, lambda entry, newest: set(entry["assignments"]), train_sizes(tiny_femnist))


def test_cells_reinitialised_are_unlike_their_ancestors_yet_sharing_may_weigh_all_alike(
    ablated: dict[str, Any],
) -> None:
    last = ablated["rounds"][-1]
    assert last["similarity"] == np.eye(len(last["similarity"])).tolist()
    for j, row in enumerate(last["mixing"]):
        np.testing.assert_allclose(row, [1 / (j + 1)] * (j + 1) + [0] * (len(row) - j - 1))


def test_widening_and_deepening_alternate_per_cell(job: dict[str, Any]) -> None:
    done: dict[str, str] = {}
    for model in job["summary"]["models"][1:]:
        for step in model["lineage"]["steps"]:
            op, cell = step.split()
            assert op == ("deepen" if done.get(cell) == "widen" else "widen")
            done[cell] = op
