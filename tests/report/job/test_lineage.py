from synthetic_job import summary

from fedscale_ext.report.job.lineage import TITLES, lineage_rows


def test_a_row_tells_where_a_model_comes_from_and_what_it_costs_and_serves() -> None:
    small, large = lineage_rows(summary())
    assert len(small) == len(TITLES)
    assert small[:4] == ["m0", "–", "0", "–"]
    assert large[:6] == ["m1", "m0", "33", "widen c0, deepen c1", "24", "24"]
    assert large[-1] == "31 (50.00 %)"


def test_shares_of_an_ensembles_members_are_of_all_clients() -> None:
    job = summary()
    for model in job["models"]:
        model["serves"] = job["clients"]["total"]
    assert [row[-1] for row in lineage_rows(job)] == ["62 (100.00 %)"] * 2


def test_models_of_a_method_without_lineage_are_listed_too() -> None:
    assert [row[:4] for row in lineage_rows(summary({}))] == [["m0", "–", "–", "–"], ["m1", "–", "–", "–"]]
