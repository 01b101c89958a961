from pathlib import Path

import pytest
from synthetic_job import header, models, records

from fedscale_ext.metrics.summary import JobResult, summarise
from fedscale_ext.report.job.own_tables import method_tables, text_tables
from fedscale_ext.report.job.tables import (
    markdown,
    megabytes,
    model_table,
    seconds,
    summary_table,
    write_markdown,
)


def summary(generated: bool = True, rounds: int = 20) -> dict:
    result = JobResult(records(rounds), lineage={"m1": {"parent": "m0", "op": "a|b"}})
    return summarise(header(generated=generated), models(), result)


def test_the_first_line_says_which_data():
    assert summary_table(summary(True))[0] == ("data", "femnist (GENERATED data, not real)")
    assert summary_table(summary(False))[0] == ("data", "femnist (real)")


def test_the_table_says_that_a_mask_is_in_the_figures():
    data = summary()
    assert "  mask_test" not in dict(summary_table(data))
    data["accuracy"]["unmasked"] = {"mean": 0.16129}
    row = dict(summary_table(data))["  mask_test"]
    assert row == "masks the classes that a client lacks, in all figures of its own tests; 16.13 % without"


def test_the_table_holds_the_figures():
    data = summary()
    rows = dict(summary_table(data))
    assert rows["client accuracy"] == f"{100 * data['accuracy']['mean']:.2f} % mean over 60 clients"
    assert f"IQR {100 * data['accuracy']['iqr']:.2f} %" in rows["  spread"]
    assert rows["  largest"] == "25.00 % on all clients' samples"
    assert rows["computation"] == "60 GMACs forward and backward (20 GMACs forward)"
    assert rows["network"] == "60.0 MB, 3.0 MB a round"
    assert rows["virtual time"].startswith("20 min 34 s; a client's round takes ")
    untested = "2 untested (no test samples, or the test failed)"
    offline = "60 times offline (a client that cannot be selected counts in each round that selects)"
    assert rows["left out"] == f"2 failed (not finite 2), 120 stragglers, {offline}, {untested}"
    assert rows["method"] == "fedtrans, seed 1"
    data["clients"]["lost_download_mb"] = 0.878
    lost = f"{offline.removesuffix(')')}; downloads of those lost in a round, 0.878 MB, are not in network)"
    assert lost in dict(summary_table(data))["left out"]


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (0.000312, "0.00031"), (0.0123, "0.012"), (1.26, "1.3"), (4321.0, "4,321.0")]
)
def test_few_bytes_are_not_written_as_none(value: float, text: str) -> None:
    assert megabytes(value) == text


def test_the_worst_client_is_called_by_its_name_where_that_is_known():
    text = {**summary(), "personalised": summary()["accuracy"]}
    number = text["accuracy"]["worst_client"]
    assert f"(client {number} and 3 more)" in dict(summary_table(text))["  spread"]
    names = [f"cam{client}" for client in range(1, 63)]
    text["clients"] = summarise(header(), models(), JobResult(records(2)), client_names=names)["clients"]
    assert text["clients"]["names"] == names
    spreads = [value for name, value in summary_table(text) if name == "  spread"]
    assert len(spreads) == 2 and all(f"(client cam{number} and 3 more)" in spread for spread in spreads)


def test_what_the_server_keeps_beside_models_is_a_row_where_it_is_something():
    rows = dict(summary_table(summarise(header(), models(), JobResult(records(2), server_bytes=2_140_000))))
    assert rows["  beside them"] == "2.1 MB that only the server keeps"
    earlier = summary()
    assert earlier["cost"].pop("server_bytes") == 0  # of a version that did not count it
    assert "  beside them" not in dict(summary_table(summary())) | dict(summary_table(earlier))


def test_a_job_that_stopped_early_or_tested_nobody():
    rows = dict(summary_table({**summary(rounds=2), "stopped": "no client online"}))
    assert rows["rounds"] == "2, stopped: no client online"
    nothing = dict(summary_table(summarise(header(), models(), JobResult([]))))
    assert nothing["client accuracy"] == "no client was tested"


@pytest.mark.parametrize(("loss", "text"), [(None, "–"), ("inf", "inf"), (2.5, "2.5000")])
def test_a_model_that_diverged_still_has_a_table(loss, text):
    rows = dict(summary_table({**summary(), "loss": {"train": loss, "test": loss}}))
    assert rows["loss"] == f"training {text}, test {text} over samples"


def test_models_are_listed():
    first, second = model_table(summary())
    assert (first["model"], first["MACs"], first["clients served"], first["from"]) == ("m0", "12", "31", "–")
    assert second["from"] == "parent m0, op a|b"


def test_markdown_is_two_tables_of_even_rows(tmp_path: Path):
    path = write_markdown(tmp_path, summary())
    text = path.read_text(encoding="utf-8")
    assert path.name == "summary.md" and text == markdown(summary())
    assert text.splitlines()[4] == "| data | femnist (GENERATED data, not real) |"
    assert "| m1 | toy | 24 | 24 | 0.00011 MB | 31 | parent m0, op a\\|b |" in text
    for line in text.splitlines():
        if line.startswith("|"):
            assert line.replace("\\|", "").count("|") in (3, 8)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.0, "0.0 s"),
        (0.0123, "12 ms"),
        (0.00004, "0.04 ms"),
        (0.0996, "100 ms"),
        (0.1, "0.1 s"),
        (8.24, "8.2 s"),
        (59.96, "1 min 0 s"),
        (725, "12 min 5 s"),
        (12_000, "3 h 20 min"),
    ],
)
def test_seconds(value: float | None, text: str):
    assert seconds(value) == text


def test_accuracies_in_a_methods_own_table_are_percentages_as_above_it():
    rows = [
        {"tier": 1, "accuracy": 0.1335, "twin_client_std": 0.05, "client_worst": None, "loss": 0.5, "mean": 0.25}
    ]  # fmt: skip
    fairness = [{"of": "random", "mean": 0.25, "worst": 0.0}]
    tables = text_tables({"rounds": 9, "results": {"tiers": rows, "fairness": fairness}})
    titles, cells = tables["Tiers"]
    assert titles == ["tier", "accuracy", "twin client std", "client worst", "loss", "mean"]
    assert cells == [["1", "13.35 %", "5.00 %", "–", "0.5", "0.25"]]
    assert tables["Fairness"][1] == [["random", "25.00 %", "0.00 %"]]


def test_a_methods_own_figures_are_tables():
    rows = [{"tier": 1, "loss_of_it": 0.123456, "bytes": 1200, "path": ["a"], "twin": None}, {"tier": 2}]
    text = markdown({**summary(), "results": {"all_tiers": rows, "other": {"not": "rows"}, "none": []}})
    assert (
        "## All tiers\n\n| tier | loss of it | bytes | twin |\n|---|---|---|---|\n| 1 | 0.1235 | 1,200 | – |\n" in text
    )
    assert "| 2 | – | – | – |" in text and "Other" not in text and "None" not in text


def test_a_methods_table_has_the_columns_of_all_rows():
    rows = [{"tier": 1, "twin": None, "path": None}, {"tier": 2, "extra": 5, "path": [1]}]
    assert method_tables({"results": {"tiers": rows}}) == {
        "tiers": [{"tier": 1, "twin": None, "extra": None}, {"tier": 2, "twin": None, "extra": 5}]
    }


def test_accuracies_of_a_methods_tables_are_per_cent_and_what_settled_last_is_marked():
    rows = [
        {"type": "a", "accuracy": 0.3399, "settled_round": 20, "settled_accuracy": 0.5, "accuracy_on_all": 1.0, "s": 2},
        {"type": "b", "accuracy": None, "settled_round": 2, "settled_accuracy": 0.0, "accuracy_on_all": 0.2, "s": 0.5},
    ]  # fmt: skip
    tables = text_tables({**summary(rounds=20), "results": {"types": rows}})
    assert tables["Types"][1] == [
        ["a", "33.99 %", "20 (last)", "50.00 %", "100.00 %", "2"],
        ["b", "–", "2", "0.00 %", "20.00 %", "0.5"],
    ]


def test_the_floor_and_the_notices_are_told() -> None:
    floor = {"majority": {"mean": 0.7, "iqr": 0.1, "sample_weighted": 0.65, "tested": 60}}
    two = {**floor, "most_frequent": {**floor["majority"], "mean": 0.2}}
    rows = summary_table(summarise({**header(), "floor": two}, models(), JobResult(records(20))))
    assert [text for title, text in rows if title == "  without a model"] == [
        "70.00 % by each client's most frequent training label",
        "20.00 % by the most frequent training label of all clients",
    ]
    stored = summarise({**header(), "floor": floor}, models(), JobResult(records(20), notices=["a | b", "slow"]))
    assert dict(summary_table(stored))["  without a model"] == "70.00 % by each client's most frequent training label"
    assert "\n## Notices\n\n- a \\| b\n- slow\n" in markdown(stored)
    plain = summarise(header(), models(), JobResult(records(20)))
    assert "  without a model" not in dict(summary_table(plain)) and "Notices" not in markdown(plain)
