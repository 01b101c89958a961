"""What is shown of a job, without a terminal."""

import io

import pytest
from rich.console import Console

from fedscale_ext.driver import progress
from fedscale_ext.driver.progress import Display, folded, span


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0.0 s"), (12.34, "12.3 s"), (60, "1 min 00 s"), (185, "3 min 05 s"), (3720, "1 h 02 min"),
     (3599.7, "1 h 00 min"), (97200, "1 d 03 h")],
)  # fmt: skip
def test_span(seconds, words):
    assert span(seconds) == words


@pytest.fixture
def display():
    return Display(Console(file=io.StringIO(), width=80), Console(file=io.StringIO(), width=80))


def a_round(number, **changes):
    event = {"event": "round", "round": number, "rounds": 40, "participants": 20, "models": 2, "loss": 1.0,
             "accuracy": None, "virtual_clock_s": 90.0, "wall_s": 2.0}  # fmt: skip
    return {**event, **changes}


def test_one_line_per_tested_or_tenth_or_last_round(display):
    with display:
        for number in range(1, 41):
            display.event(a_round(number, accuracy=0.5 if number == 7 else None))
    shown = [line.split(",")[0] for line in display.out.file.getvalue().splitlines()]
    assert shown == ["round 7/40", "round 10/40", "round 20/40", "round 30/40", "round 40/40"]


def test_a_rounds_line_names_its_phase_and_each_phase_has_a_line(display):
    phases = ["supernet training", "supernet training", "fine-tuning of tier 1", "fine-tuning of tier 1"]
    with display:
        for number, phase in enumerate(phases, 1):
            display.event(a_round(number, phase=phase))
    shown = [line.split(", ")[:3] for line in display.out.file.getvalue().splitlines()]
    assert shown == [
        ["round 1/40", "supernet training", "20 clients"],
        ["round 3/40", "fine-tuning of tier 1", "20 clients"],
    ]
    screen = Console(file=io.StringIO(), width=80)
    screen.print(display.picture())
    assert "\nfine-tuning of tier 1, 20 clients" in screen.file.getvalue()


def test_a_narrow_terminal_breaks_a_rounds_line_between_facts():
    facts = ["round 100/100", "40 clients", "loss 1.732", "accuracy 45.0 %", "virtual clock 1 min 28 s"]
    assert folded(facts, 79) == ("round 100/100, 40 clients, loss 1.732, accuracy 45.0 %,\n  virtual clock 1 min 28 s")
    assert folded(facts, 100) == ", ".join(facts)
    display = Display(Console(file=io.StringIO(), width=60, force_terminal=True), Console(file=io.StringIO()))
    with display:
        display.event(a_round(7, accuracy=0.5))
    assert "loss 1.000,\n  accuracy 50.0 %, virtual clock" in display.out.file.getvalue()


def test_eta_counts_only_the_rounds_of_this_run(display, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    for number in range(30, 36):  # a job resumed after round 29, 2 s a round
        now[0] += 2.0
        display.event(a_round(number, accuracy=0.1 if number == 35 else None))
    assert "ETA 10.0 s" in display.out.file.getvalue().splitlines()[-1]


def test_eta_is_a_bound_after_the_first_round_and_forgets_it_as_soon_as_there_are_others(display, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    for number, seconds in ((1, 30.0), (2, 2.0), (3, 4.0)):  # everything starts up in round 1
        now[0] += seconds
        display.event(a_round(number, rounds=10, wall_s=seconds, accuracy=0.1))
    etas = [line.partition("ETA ")[2] for line in display.out.file.getvalue().splitlines()]
    assert etas == ["at most 4 min 30 s", "16.0 s", "21.0 s"]


def test_text_of_a_job_is_no_markup_and_is_not_wrapped(display):
    path = "/" + "long/" * 40
    display.event({"event": "notice", "message": f"[red]x[/] {path}"})
    display.event({"event": "ready", "data": "real: [bold]", "log_dir": path})
    assert display.err.file.getvalue() == f"note: [red]x[/] {path}\n"
    assert "real: [bold]" in display.out.file.getvalue()
    assert f"results     {path}\n" in display.out.file.getvalue()


def test_events_of_later_versions_are_passed_over(display):
    display.event({"event": "something new"})
    assert display.out.file.getvalue() == ""


def test_what_goes_on_within_a_round_is_shown(display):
    display.event(a_round(10))
    display.event({"event": "progress", "round": 11, "what": "search of tier 1 of 4"})
    assert display.out.file.getvalue().splitlines()[-1] == "round 11: search of tier 1 of 4"
    screen = Console(file=io.StringIO(), width=80)
    screen.print(display.picture())
    display.event(a_round(11))
    assert screen.file.getvalue().splitlines()[-1].strip() == "search of tier 1 of 4"
    screen.print(display.picture())
    assert screen.file.getvalue().count("search of tier") == 1, "over with the round"


def test_what_passes_within_a_round_is_no_line_that_stays(display):
    before = display.out.file.getvalue()
    display.event({"event": "progress", "round": 1, "what": "server: 1 of 4 transfers done", "passing": True})
    assert display.out.file.getvalue() == before
    screen = Console(file=io.StringIO(), width=80)
    screen.print(display.picture())
    shown = [line.strip() for line in screen.file.getvalue().splitlines()]
    assert shown == ["starting ...", "server: 1 of 4 transfers done"]  # of the first round, too


def test_a_methods_own_tables_follow_the_result(display):
    tiers = [["tier", "clients", "accuracy", "loss"], [["1", "30", "0.5", "1.2"], ["2", "20", "0.6", "1.1"]]]
    rounds = [["stage", "rounds"], [["search", "3"], ["training", "40"]]]
    event = {"table": [["rounds", "2"]], "tables": {"Tiers": tiers, "Stages": rounds}}
    display.summary(event, "/logs", "/out.log")
    shown = display.out.file.getvalue().splitlines()
    assert shown[4:10] == [
        "Tiers",
        "tier      1    2",
        "clients   30   20",
        "accuracy  0.5  0.6",
        "loss      1.2  1.1",
        "",
    ]
    assert shown[10:13] == ["Stages", "stage     rounds", "search    3"]


def test_the_command_that_shows_figures_is_told_at_once(display):
    display.event({"event": "ready", "log_dir": "/a b"})
    assert "watch       tensorboard --logdir '/a b'" in display.out.file.getvalue().splitlines()
