from pathlib import Path

import numpy as np
import pytest
from written_job import CLIENTS, capacities, write_job

from fedscale_ext.report.arms import Arm
from fedscale_ext.report.devices import assignment, class_means, class_names
from fedscale_ext.report.loading import load_job


def test_a_class_is_a_quarter_of_the_clients_by_capacity(folders: list[Path]):
    job = load_job(folders[0])
    means = class_means(Arm("a", [job]))
    assert means is not None and len(means) == len(class_names()) == 4
    order = np.argsort(capacities(), kind="stable")
    quarters = [order[np.arange(CLIENTS) * 4 // CLIENTS == k] for k in range(4)]
    np.testing.assert_allclose(means, [np.nanmean(job.client_accuracy[quarter]) for quarter in quarters])


def test_seeds_are_averaged_and_jobs_without_capacities_have_no_classes(folders: list[Path], tmp_path: Path):
    one, two = load_job(folders[0]), load_job(folders[1])
    both = class_means(Arm("a", [one, two]))
    single = [class_means(Arm("a", [job])) for job in (one, two)]
    assert both is not None and single[0] is not None and single[1] is not None
    np.testing.assert_allclose(both, (single[0] + single[1]) / 2)
    old = load_job(write_job(tmp_path / "old", clients=False))
    assert class_means(Arm("a", [one, old])) is None and assignment(old) is None


def test_the_assignment_counts_who_is_served_what_in_bins_of_capacity(folders: list[Path]):
    found = assignment(load_job(folders[0]))
    assert found is not None and found.models == ["m0", "m1"]
    assert found.share.shape == (2, 10) and len(found.edges) == 11
    np.testing.assert_allclose(found.share.sum(axis=0), 1)
    assert (found.edges[0], found.edges[-1]) == (1e3, CLIENTS * 1e3) and (np.diff(found.edges) >= 0).all()
    # clients are served m0 and m1 in turn, and stand in the order of their capacities: seven in the first bin
    assert found.share[0, 0] == pytest.approx(4 / 7)
