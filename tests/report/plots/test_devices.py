from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from written_job import CLIENTS, capacities, write_job

from fedscale_ext.report.compare.arms import Arm
from fedscale_ext.report.job.loading import LoadedJob, load_job
from fedscale_ext.report.plots import job_plots
from fedscale_ext.report.plots.devices import assignment, device_classes


def test_a_class_is_a_quarter_of_the_clients_by_capacity(folders: list[Path]):
    job = load_job(folders[0])
    classes = device_classes([Arm("a", [job], "femnist")])
    means = classes.means[0]
    assert means is not None and len(means) == len(classes.names) == 4
    order = np.argsort(capacities(), kind="stable")
    quarters = [order[np.arange(CLIENTS) * 4 // CLIENTS == k] for k in range(4)]
    np.testing.assert_allclose(means, [np.nanmean(job.client_accuracy[quarter]) for quarter in quarters])


def test_seeds_are_averaged_and_jobs_without_capacities_have_no_classes(folders: list[Path], tmp_path: Path):
    one, two = load_job(folders[0]), load_job(folders[1])
    both, *each = device_classes(
        [Arm("a", [one, two], "femnist"), Arm("b", [one], "femnist"), Arm("c", [two], "femnist")]
    ).means
    assert both is not None and each[0] is not None and each[1] is not None
    np.testing.assert_allclose(both, (each[0] + each[1]) / 2)
    old = load_job(write_job(tmp_path / "old", clients=False))
    assert device_classes([Arm("a", [one, old], "femnist")]).means == [None] and assignment(old) is None


def with_capacities(folder: Path, capacity: np.ndarray) -> LoadedJob:
    """A job whose clients' devices afford ``capacity`` [clients]."""
    job = load_job(write_job(folder))
    job.__dict__["clients"] = replace(job.clients, capacity=capacity)
    return job


def test_a_few_kinds_of_devices_are_a_class_each(tmp_path: Path):
    kind = np.arange(CLIENTS) % 3
    one = with_capacities(tmp_path / "a", np.array([1e6, 2e6, 4e6])[kind])
    twice = with_capacities(tmp_path / "b", np.array([2e6, 4e6, 8e6])[kind])
    classes = device_classes([Arm("a", [one], "femnist")])
    assert classes.names == ["1 MMACs", "2 MMACs", "4 MMACs"]
    expected = [np.nanmean(one.client_accuracy[kind == number]) for number in range(3)]
    np.testing.assert_allclose(classes.means[0], expected)
    both = device_classes([Arm("a", [one], "femnist"), Arm("b", [twice], "femnist")])  # of one trace, for another base
    assert both.names == ["kind 1", "kind 2", "kind 3"]
    many = with_capacities(tmp_path / "c", np.arange(1.0, CLIENTS + 1))
    assert len(device_classes([Arm("a", [one], "femnist"), Arm("c", [many], "femnist")]).names) == 4
    shares = assignment(one)
    assert shares is not None and shares.kinds == ["1 M", "2 M", "4 M"] and shares.share.shape == (2, 3)
    assert "2 M" in [text.get_text() for text in job_plots.plots(one)["assignment"][1].axes[0].get_xticklabels()]


def test_long_names_of_models_stand_below_the_plot_of_assignments(tmp_path: Path):
    job = load_job(write_job(tmp_path / "a", personal=True))
    figure = job_plots.plots(job)["assignment"][1]
    figure.draw_without_rendering()
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [f"personal models (m{k})" for k in (0, 1)]
    box, panel = legend.get_window_extent(), figure.axes[0].get_window_extent()
    assert box.y1 < panel.y0 and box.x1 <= figure.bbox.x1


def test_the_assignment_counts_who_is_served_what_in_bins_of_capacity(folders: list[Path]):
    shares = assignment(load_job(folders[0]))
    assert shares is not None and shares.models == ["m0", "m1"]
    assert shares.share.shape == (2, 10) and len(shares.edges) == 11
    np.testing.assert_allclose(shares.share.sum(axis=0), 1)
    assert (shares.edges[0], shares.edges[-1]) == (1e3, CLIENTS * 1e3) and (np.diff(shares.edges) >= 0).all()
    # clients are served m0 and m1 in turn, and stand in the order of their capacities: seven in the first bin
    assert shares.share[0, 0] == pytest.approx(4 / 7)


def test_many_and_long_names_are_not_clipped_and_do_not_squeeze_the_plot(tmp_path: Path):
    job = load_job(write_job(tmp_path / "a"))
    assert job.evaluation is not None
    keys = [f"{'long-' * 20}{number}@own" for number in range(14)]
    evaluation = replace(job.evaluation, serve=tuple(keys[client % 14] for client in range(CLIENTS)))
    job = replace(job, records=[replace(record, evaluation=evaluation) for record in job.records])
    figure = job_plots.plots(job)["assignment"][1]
    figure.draw_without_rendering()
    box, panel = figure.legends[0].get_window_extent(), figure.axes[0].get_window_extent()
    assert box.x1 <= figure.bbox.x1 and box.y0 >= 0 and box.y1 < panel.y0
    assert panel.height > 1.5 * figure.dpi
