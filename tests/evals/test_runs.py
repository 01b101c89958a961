"""runs.jsonl and tables.json: what is written is read again, and what is broken is told in one sentence."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals import claims, tables
from evals.fedtrans import settings
from evals.fedtrans.table2 import EXPERIMENT
from evals.paper import floors
from evals.paper.measurement import DIGITS, Measurement
from evals.paper.papers import PAPERS
from evals.paper.runs import NOT_RUN, Records, Table, TableRow, anchor
from fedscale_ext.core.errors import UserError

TEXTS = st.text(max_size=12)
VALUES = st.none() | st.booleans() | st.integers(-9, 9) | TEXTS | st.floats(allow_nan=False, allow_infinity=False)
RUNS = st.builds(
    Measurement,
    TEXTS,
    st.sampled_from(("smoke", "small", "paper")),
    st.integers(0, 5),
    st.dictionaries(TEXTS, VALUES | st.lists(VALUES, max_size=2), max_size=3),
    st.dictionaries(TEXTS, st.floats(allow_infinity=False, width=32), max_size=3),
    TEXTS,
    st.none() | TEXTS,
    TEXTS,
)


def write(folder: Path, *runs: Measurement) -> Records:
    records = Records(folder)
    rows = [TableRow(f"row {number}", run.data, [records.add(run)]) for number, run in enumerate(runs)]
    records.tables["x_small"] = Table("x", "small", ["python -m x"], rows, ["A note."], {"a": "is older"}, {"b": 0.5})
    records.save()
    return records


@given(st.lists(RUNS, max_size=6))
def test_what_is_recorded_is_read_again(tmp_path_factory: pytest.TempPathFactory, runs: list[Measurement]) -> None:
    folder = tmp_path_factory.mktemp("records")
    written, read = write(folder, *runs), Records.load(folder)
    assert read.tables == written.tables and read.runs.keys() == written.runs.keys()
    for name, run in written.runs.items():
        assert replace(read.runs[name], figures={}) == replace(run, figures={})
        for column, value in run.figures.items():
            again = read.runs[name].figures[column]
            assert again == value or (math.isnan(again) and math.isnan(value))
    before = [(folder / name).read_bytes() for name in ("runs.jsonl", "tables.json")]
    read.save()
    assert before == [(folder / name).read_bytes() for name in ("runs.jsonl", "tables.json")]


def run(**more: Any) -> Measurement:
    fields: dict[str, Any] = {"data": "har", "scale": "small", "seed": 1, "keys": {"rounds": 5}, "figures": {"a": 1.0}}
    return Measurement(**{**fields, **more})


def test_lines_do_not_depend_on_the_order_in_which_jobs_ended(tmp_path: Path) -> None:
    runs = [run(seed=seed, keys={"rounds": rounds}) for seed in (2, 1) for rounds in (5, 3)]
    write(tmp_path / "a", *runs)
    write(tmp_path / "b", *runs[::-1])
    texts = [(tmp_path / name / "runs.jsonl").read_text() for name in "ab"]
    assert texts[0] == texts[1]
    read = Records.load(tmp_path / "a").runs.values()
    assert [(one.keys["rounds"], one.seed) for one in read] == [(3, 1), (3, 2), (5, 1), (5, 2)]


def test_a_line_does_not_repeat_what_the_line_above_has(tmp_path: Path) -> None:
    write(
        tmp_path,
        run(),
        run(seed=2),
        run(seed=2, part="p", keys={"rounds": True}),
        run(figures={"a": 1.0, "b": 2.0}, data="x"),
    )
    lines = [json.loads(line) for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
    assert [sorted(line.keys() - {"id"}) for line in lines] == [
        ["columns", "data", "figures", "keys", "scale", "seed"],
        ["figures", "seed"],
        ["figures", "keys", "part", "seed"],
        ["columns", "data", "figures", "keys", "part", "seed"],
    ]


def test_complete_lines_are_read_among_those_that_share(tmp_path: Path) -> None:
    write(tmp_path, run(), run(part="p", seed=2))
    path = tmp_path / "runs.jsonl"
    complete = run(data="x", seed=7)
    path.write_text(path.read_text() + f"{complete.line()}\n" + path.read_text().replace('"seed":', '"seed":1'))
    with pytest.raises(UserError, match="line 4: id "):
        Records.load(tmp_path)
    path.write_text("\n".join(path.read_text().splitlines()[:3]))
    assert Records.load(tmp_path).runs[complete.id] == complete


def test_rows_that_were_not_run_are_a_list_of_labels(tmp_path: Path) -> None:
    records = write(tmp_path, run())
    rows = [
        *records.tables["x_small"].rows,
        TableRow("b", "har", failed=[NOT_RUN]),
        TableRow("c", "har", failed=[NOT_RUN]),
    ]
    records.tables["x_small"] = replace(records.tables["x_small"], rows=rows)
    records.save()
    (table,) = json.loads((tmp_path / "tables.json").read_text()).values()
    assert table["not_run"] == ["b", "c"] and table["data"] == "har"
    assert table["rows"] == [{"label": "row 0", "runs": [run().id]}]
    assert Records.load(tmp_path).tables == records.tables


def test_figures_have_ten_digits_and_nothing_else_is_rounded(tmp_path: Path) -> None:
    records = write(tmp_path, run(figures={"a": 1 / 3, "b": 2e12 + 1, "c": 100.0, "d": math.nan}, keys={"x": 1 / 3}))
    line = json.loads((tmp_path / "runs.jsonl").read_text())
    assert DIGITS == 10
    assert line["columns"] == ["a", "b", "c", "d"] and line["keys"] == {"x": 1 / 3}
    assert line["figures"] == [0.3333333333, 2e12, 100, None]
    assert list(records.runs) == [line["id"]]


def test_equal_jobs_are_one_line_with_the_columns_of_both() -> None:
    records = Records(Path("x"))
    first = records.add(run(figures={"a": 1.0, "b": 2.0}))
    assert records.add(run(figures={"b": 3.0, "c": 4.0})) == first
    assert records.runs[first].figures == {"a": 1.0, "b": 3.0, "c": 4.0}


@pytest.mark.parametrize(
    "more", [{"seed": 2}, {"keys": {"rounds": 6}}, {"data": "x"}, {"scale": "paper"}, {"part": "p"}, {"code": "c"}]
)
def test_different_jobs_are_different_lines(more: dict[str, Any]) -> None:
    assert run(**more).id != run().id


def test_a_line_that_no_table_shows_is_left_out(tmp_path: Path) -> None:
    records = write(tmp_path, run(), run(seed=2))
    table = records.tables["x_small"]
    records.tables["x_small"] = replace(table, rows=table.rows[:1])
    records.save()
    assert [one.seed for one in Records.load(tmp_path).runs.values()] == [1]


GOOD = run().line()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 2 is not a run (evals/README.md has the form of a line): mend the line, delete it, or take"),
        ("[]", "line 2 is not a run"),
        ('"text"', "line 2 is not a run"),
        (GOOD.replace('"seed":1', '"seed":"one"'), "line 2 is not a run"),
        (GOOD.replace('"figures":{"a":1}', '"figures":[1,2]'), "line 2 is not a run"),
        ('{"id":"x","seed":2}', "line 2: there is no 'figures': mend the line"),
        (GOOD.replace('"seed":1,', ""), "line 2: there is no 'seed': mend the line"),
        (GOOD.replace('"seed":1', '"seed":3'), "is not that of its keys: write "),
        (GOOD, f"line 2: {run().id} was there before: delete one of the two lines"),
    ],
)
def test_a_broken_line_is_told_with_its_number(tmp_path: Path, line: str, said: str) -> None:
    write(tmp_path, run())
    with (tmp_path / "runs.jsonl").open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(UserError) as error:
        Records.load(tmp_path)
    assert str(error.value).startswith(f"{tmp_path / 'runs.jsonl'}, line 2") and said in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"rows": [', '"rows": ', "is no JSON ("),
        ('"script"', '"skript"', "has a table of another form ("),
        (f'"{run().id}"', '"00000000"', "x_small shows run 00000000, which runs.jsonl does not have"),
    ],
)
def test_a_broken_table_is_told(tmp_path: Path, old: str, new: str, said: str) -> None:
    write(tmp_path, run())
    path = tmp_path / "tables.json"
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(UserError) as error:
        Records.load(tmp_path)
    assert str(error.value).startswith(f"{path}") and said in str(error.value)


def test_every_command_ends_with_code_2_where_a_line_is_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "fedtrans").mkdir()
    (tmp_path / "fedtrans" / "runs.jsonl").write_text("{\n")
    monkeypatch.setattr(claims, "FOLDER", tmp_path)
    monkeypatch.setattr(tables, "FOLDER", tmp_path)
    monkeypatch.setattr(settings, "PAPER", replace(settings.PAPER, folder=tmp_path / "fedtrans"))
    assert claims.main() == tables.main([]) == floors.main(["--paper", "fedtrans"]) == 2
    assert settings.main(EXPERIMENT, ["--results", str(tmp_path / "fedtrans"), "--folder", str(tmp_path)]) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 4 and all("runs.jsonl, line 1 is not a run" in line for line in said)


@pytest.mark.parametrize("paper", PAPERS)
def test_recorded_files_are_as_the_code_writes_them(paper: str, tmp_path: Path) -> None:
    """If not: python -m evals.tables"""
    records = Records.load(claims.FOLDER / paper)
    replace(records, folder=tmp_path).save()
    for name in ("runs.jsonl", "tables.json"):
        assert (tmp_path / name).read_text(encoding="utf-8") == (claims.FOLDER / paper / name).read_text(
            encoding="utf-8"
        )
    assert len({anchor(name) for name in records.tables}) == len(records.tables)


def test_the_readme_reads_runs_and_shows_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (claims.FOLDER / "README.md").read_text(encoding="utf-8")
    section = text.split("## Recorded runs\n")[1].split("\n## ")[0]
    monkeypatch.chdir(claims.FOLDER.parent)
    exec(section.split("```python\n")[1].split("```")[0], {})
    assert "'method': 'fedtrans'" in capsys.readouterr().out
    shown = json.loads(section.split("```json\n")[1].split("```")[0])
    run = Records.load(claims.FOLDER / "fedtrans").runs[shown["id"]]
    line = json.loads(run.line())
    assert shown == {**line, "figures": {name: line["figures"][name] for name in shown["figures"]}}


def test_bases_of_different_length_have_different_keys() -> None:
    records = Records.load(claims.FOLDER / "fedtrans")
    accuracies = {}
    for table, rounds in (("", None), ("_300_rounds", 300), ("_1000_rounds", 1000)):
        row = records.tables[f"base_size_small_speech{table}"].rows[0]
        line = records.runs[row.runs[0]]
        assert line.keys.get("rounds") == rounds
        accuracies[row.runs[0]] = round(line.figures["accuracy %"], 1)
    assert sorted(accuracies.values()) == [59.8, 66.5, 67.5]


def test_pictures_are_drawn_from_recorded_figures_or_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.png"
    assert tables.main(["fedtrans", "--plot", "fig10a_small_speech_half", "--out", str(path)]) == 0
    assert path.stat().st_size > 10_000
    capsys.readouterr()
    for argv, said in (
        (["fedtrans", "--plot", "fig7_small_speech"], "has recorded figures alone"),
        (["fedoras", "--plot", "fig5_small_cifar10-h0.1"], "has recorded figures alone"),
        (["fedtrans", "--plot", "fig99"], "fedtrans has no table 'fig99'; there are base_size_small_speech, "),
        (["fedtrans", "--plot", "floors_small"], "the floors have no picture"),
        (["--plot", "fig7_small_speech"], "name the one paper whose table --plot names"),
        (["nobody"], "there is no paper 'nobody'; there are fedtrans, "),
    ):
        assert tables.main([*argv, "--out", str(path)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert said in line


def test_all_pictures_are_drawn_or_say_why_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for paper in PAPERS:
        seen = set()
        for name, table in Records.load(claims.FOLDER / paper).tables.items():
            if table.script in seen:
                continue
            seen.add(table.script)
            code = tables.main([paper, "--plot", name, "--out", str(tmp_path / "x.png")])
            said = capsys.readouterr()
            assert code == 0 or (code == 2 and len(said.err.splitlines()) == 1), (paper, name)
