"""The traces commands."""

import pickle
from pathlib import Path

import numpy as np
import pytest

from fedscale_ext.population.traces.resampling import resample_capacity

SAMPLES = Path(__file__).resolve().parents[2] / "device_traces"
CAPACITY, AVAILABILITY = SAMPLES / "sample_capacity.csv", SAMPLES / "sample_availability.csv"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_inspect_shows_table_and_bars_in_80_columns(call):
    code, stdout, err = call("traces", "inspect", CAPACITY, AVAILABILITY)
    assert code == 0 and not err
    assert "capacity of 20 devices, resampled" in stdout and "availability of 12 clients" in stdout
    assert "devices at     0 %" in stdout and "% of time online" in stdout
    assert "\ndevices by kbit/s\n" in stdout and "\n23 h  " in stdout
    assert max(len(line) for line in stdout.splitlines() if str(SAMPLES) not in line) <= 80
    assert "\x1b" not in stdout
    bars = [int(line.split()[-1].replace(",", "")) for line in stdout.split("ms per sample\n")[1].splitlines()[:10]]
    assert sum(bars) == 20


def test_inspect_draws_a_picture(call):
    code, stdout, err = call("traces", "inspect", AVAILABILITY, CAPACITY, "--plot", "new/a.png")
    assert code == 0, err
    assert stdout.splitlines()[-1] == "picture: new/a.png"
    assert Path("new/a.png").read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in Path("new").iterdir()] == ["a.png"]


def test_a_device_alone_and_a_client_never_online_are_shown(call):
    Path("c.csv").write_text("client_id,computation,communication\n1,20,3000\n")
    Path("a.csv").write_text("client_id,active,inactive,finish_time\n1,5,3,86400\n")
    code, stdout, err = call("traces", "inspect", "c.csv", "a.csv", "-p", "p.svg")
    assert code == 0, err
    assert "1 client is never online" in stdout
    assert Path("p.svg").read_text().startswith("<?xml")


def test_inspect_reports_values_in_another_unit(call):
    Path("c.csv").write_text("client_id,computation,communication\n1,0.02,3000\n2,0.03,4000\n")
    Path("a.csv").write_text("client_id,active,inactive,finish_time\n1,3,5,24\n")
    code, _, err = call("traces", "inspect", "c.csv", "a.csv")
    assert code == 0, err
    text = " ".join(err.split())
    assert (
        "note: c.csv: the median computation is 0.025" in text and "note: a.csv: the median finish_time is 24" in text
    )


def test_convert_fedscales_pickle(call):
    trace = {5: {"active": [0, 7.25], "inactive": [3, 9], "finish_time": 10, "duration": 5, "model": "x"}}
    Path("client_behave_trace").write_bytes(pickle.dumps(trace))
    code, stdout, err = call("traces", "convert", "client_behave_trace", "out/a.npz")
    assert code == 0, err
    assert stdout.startswith("out/a.npz: availability of 1 clients in 2 intervals, as traced, ")
    assert stdout.splitlines()[1] == "use it with: --set device_avail_file=out/a.npz"
    with np.load("out/a.npz", allow_pickle=False) as arrays:
        assert arrays["active"].tolist() == [0, 7.25] and "resampled" not in arrays
    assert call("traces", "convert", "out/a.npz", "a.csv")[0] == 0
    assert Path("a.csv").read_text() == "client_id,active,inactive,finish_time\n5,0,3,10\n5,7.25,9,10\n"


def test_traces_that_name_clients_are_converted_and_shown(call):
    Path("c.csv").write_text("client_id,computation,communication\nmill,20,3000\ngröße,7,100\n", encoding="utf-8")
    Path("a.csv").write_text("client_id,active,inactive,finish_time\nmill,5,9,100\nhut,1,2,100\nmill,20,30,100\n")
    for name, shown in (("c", "capacity of 2 devices, as traced, for mill, größe"),
                        ("a", "availability of 2 clients in 3 intervals, as traced, for mill, hut")):  # fmt: skip
        code, stdout, err = call("traces", "convert", f"{name}.csv", f"{name}.npz")
        assert code == 0 and stdout.startswith(f"{name}.npz: {shown}, "), err
        assert call("traces", "convert", f"{name}.npz", f"{name}2.csv")[0] == 0
    assert Path("c2.csv").read_text(encoding="utf-8") == Path("c.csv").read_text(encoding="utf-8")
    code, stdout, err = call("traces", "inspect", "c.npz", "a.npz")
    assert code == 0 and "for mill, hut" in stdout, err


class Harmful:
    def __reduce__(self):
        return Path.touch, (Path("harmed"),)


def test_a_harmful_pickle_is_refused_unrun(call):
    Path("trace").write_bytes(pickle.dumps({1: {"computation": Harmful(), "communication": 2}}))
    for arguments in (["inspect", "trace"], ["convert", "trace", "a.npz"]):
        code, _, err = call("traces", *arguments)
        assert code == 2 and "refused" in err and err.count("\n") == 1
    assert {path.name for path in Path().iterdir()} <= {"trace", "state"}


def test_synthesize_is_the_population_of_its_seed_and_marked(call):
    code, stdout, err = call("traces", "synthesize", 30, "--seed", 7, "-o", "t")
    assert code == 0, err
    assert "t/capacity.npz: capacity of 30 devices, resampled from published marginals" in stdout
    assert stdout.splitlines()[-1] == (
        "use them with: --set device_conf_file=t/capacity.npz --set device_avail_file=t/availability.npz"
    )
    with np.load("t/capacity.npz", allow_pickle=False) as arrays:
        assert arrays["communication_kbps"].tolist() == resample_capacity(30, 7).communication_kbps.tolist()
        assert arrays["resampled"].all()
    first = Path("t/availability.npz").read_bytes()
    code, _, err = call("traces", "synthesize", 30, "--seed", 7, "-o", "t")
    assert code == 2 and "t/capacity.npz exists" in err
    assert call("traces", "synthesize", 30, "--seed", 7, "-o", "t", "--force")[0] == 0
    assert Path("t/availability.npz").read_bytes() == first
    code, stdout, _ = call("traces", "synthesize", 30, "--seed", 7, "-o", "t", "--format", "csv")
    assert code == 0
    assert "resampled from published marginals" in call("traces", "inspect", "t/availability.csv")[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["inspect", "nothing"], "nothing: cannot read this trace"),
        (["inspect", CAPACITY, CAPACITY], "are traces of one kind"),
        (["inspect", CAPACITY, AVAILABILITY, CAPACITY], "not more files"),
        (["inspect", CAPACITY, "--plot", "a.jpg"], "a.jpg must end in .png, .svg or .pdf"),
        (["inspect", CAPACITY, "--plot", "there.png"], "there.png exists"),
        (["convert", CAPACITY, "a.pkl"], "a.pkl must end in .npz or .csv"),
        (["convert", CAPACITY, "there.csv"], "there.csv exists"),
        (["convert", "there.csv", "./there.csv", "--force"], "is the trace itself"),
        (["convert", "there.csv", "a.npz"], "there.csv is no trace"),
        (["synthesize", 0], "0 devices cannot be drawn"),
        (["synthesize", 10**9], "1000000000 devices cannot be drawn"),
        (["synthesize", 3, "--seed", "-1"], "the seed must be 0 or above"),
        (["synthesize", 3, "-o", "there.csv"], "cannot be written"),
    ],
)
def test_bad_input_is_one_sentence(call, arguments, words):
    Path("there.csv").touch()
    Path("there.csv").write_text("a,b\n1,2\n")
    Path("there.png").touch()
    code, _, err = call("traces", *arguments)
    assert code == 2
    assert words in err and err.startswith("fedscale: ") and err.count("\n") == 1
