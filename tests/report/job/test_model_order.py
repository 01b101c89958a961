from dataclasses import replace

from synthetic_job import evaluation, record

from fedscale_ext.report.job.model_order import model_order


def test_models_are_in_one_order_by_number():
    two = [replace(record(1), assignments={"m10": 1, "m2": 3}), replace(record(2), assignments={"m1": 1})]
    assert model_order(two, ["z", "m2"]) == ["m1", "m2", "m10", "z"]
    mixed = evaluation(2, [0.5, 0.5])
    two[1] = replace(two[1], evaluation=replace(mixed, serve=("m2", "a+b")))
    assert model_order(two) == ["m1", "m2", "m10", "a+b"]
