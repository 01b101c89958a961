import math

import numpy as np
import pytest
from synthetic_job import models, records

from fedscale_ext.core.types import personal_version
from fedscale_ext.metrics.cost import Spent, round_completion, spent, storage


def test_sums_over_rounds():
    total = spent(records(10))
    assert (total.rounds, total.forward_macs, total.training_macs) == (10, 1e10, 3e10)
    assert (total.download_bytes, total.upload_bytes) == (20_000_000, 10_000_000)
    assert total.network_mb == pytest.approx(30.0)
    assert total.network_per_round_mb == pytest.approx(3.0)
    assert Spent().network_per_round_mb == 0.0


def test_storage_tells_the_suite_from_the_served_mean():
    stored = storage(models(), ["m0", "m0", "m1"])
    assert stored.suite_mb == pytest.approx((48 + 106) / 1e6)
    assert stored.mean_model_mb == pytest.approx((48 + 48 + 106) / 3 / 1e6)
    assert math.isnan(storage(models(), []).mean_model_mb)


def test_storage_counts_the_models_that_clients_keep():
    stored = storage(models(), [personal_version("m0"), personal_version("m0"), "m1"], {1, 3})
    assert stored.client_models == 1  # client 2 has the pool's yet, and client 3 is served it
    assert stored.suite_mb == pytest.approx((48 + 106 + 48) / 1e6)
    assert storage(models(), [personal_version("m0")] * 5).suite_mb == pytest.approx((48 + 106 + 5 * 48) / 1e6)


def test_a_pruned_personal_model_has_its_own_size():
    serve = [personal_version("m0"), personal_version("m0"), "m1"]
    stored = storage(models(), serve, {1}, [20.0, 30.0, 40.0])
    assert stored.suite_mb == pytest.approx((48 + 106 + 20) / 1e6)  # client 2 has not trained, and has the pool's
    assert stored.mean_model_mb == pytest.approx((20 + 30 + 106) / 3 / 1e6)  # of which it is served its part


def test_a_client_may_be_served_more_or_less_than_it_keeps():
    serve = [personal_version("m0"), personal_version("m0"), "m1"]
    stored = storage(models(), serve, {1, 3}, [20.0, 30.0, 40.0], [25.0, 35.0, 45.0])
    assert stored.suite_mb == pytest.approx((48 + 106 + 20) / 1e6) and stored.client_models == 1
    assert stored.mean_model_mb == pytest.approx((25 + 35 + 106) / 3 / 1e6)


def test_round_completion_counts_every_client_of_every_round():
    rounds = records(3)
    every = np.concatenate([record.client_durations_s for record in rounds])
    assert round_completion(rounds) == pytest.approx((every.mean(), every.std()))
    assert all(map(math.isnan, round_completion([])))
