"""What a job reports about its data before it trains."""

import csv
from pathlib import Path

import numpy as np
from PIL import Image

from fedscale_ext.config.job_config import load_config
from fedscale_ext.entry.in_process import run_in_process


def test_gaps_in_labels_resized_pictures_and_untested_clients_are_reported(job_file: Path, tmp_path: Path) -> None:
    folder, rng = tmp_path / "byhand", np.random.default_rng(1)
    (folder / "client_data_mapping").mkdir(parents=True)
    rows = [["client_id", "sample_path", "label_name", "label_id"]]
    for number in range(11):
        size = (1100, 1100) if number == 0 else (28, 28)
        Image.fromarray(rng.integers(0, 256, size, dtype=np.uint8)).save(folder / f"{number}.png")
        rows.append([f"c{number // 2}", f"{number}.png", "", str(1 + 2 * (number % 2))])
    with open(folder / "client_data_mapping" / "train.csv", "w", newline="") as file:
        csv.writer(file).writerows(rows)
    keys = ["data_set=own", f"data_dir={folder}", "sample_shape=1x28x28", "rounds=1", "num_participants=2"]
    notices: list[str] = []
    config = load_config(job_file, keys)
    run_in_process(config, lambda event: notices.append(event["message"]) if event["event"] == "notice" else None)
    assert "data: 1 of 11 pictures was resized to 1x28x28 (1 of 1100x1100)" in notices
    assert "data: 4 classes by the labels: 2 of 4 classes have no sample: 0, 2" in notices
    assert "1 of 6 clients has no test samples: it is not in the accuracies" in notices
