"""WIRE: its gradients, its equality to the plain loop, its switches, its state."""

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch

from evals.speed import moss_loop
from fedscale_ext import models
from fedscale_ext.methods.moss import knowledge_transfer, losses, matching
from fedscale_ext.methods.moss.knowledge_transfer import Options, Wire
from fedscale_ext.methods.moss.losses import observe
from fedscale_ext.util.macs import MacCounter
from tests.methods.moss.toy import OPTIONS, SHAPE, SPECS, double, generator, public, seen, start, wire

DOUBLE = torch.zeros((), dtype=torch.float64)
PAIRS = [("resnet", "cnn"), ("cnn", "resnet"), ("resnet", "mobilenet"), ("mobilenet", "mlp"), ("vit", "resnet")]


def run(transfer, teacher, student, data=None, **changes):
    data = data or public()
    return transfer.run(seen(transfer, teacher, data), start(student), data.x, data.labels, generator(**changes))


def directions(like):
    return {name: torch.randn(each.shape, generator=generator(), dtype=each.dtype) for name, each in like.items()}


@pytest.mark.parametrize(
    ("teacher", "student", "layers"), [*((*pair, 1) for pair in PAIRS), ("mlp", "cnn", 1), ("resnet", "cnn", 2)]
)
def test_bilevel_gradients_are_those_of_finite_differences(teacher, student, layers):
    options = replace(OPTIONS, lr=0.2, inner_steps=3, beta=0.7, meta_layers=layers)
    transfer, data = wire(teacher, student, options), public(5)
    observed = seen(transfer, teacher, data)
    problem = losses.Student(SPECS[student], transfer.student_taps, start(student), DOUBLE, generator())
    targets = matching.MapTargets.of(observed.maps, transfer._shapes[1])
    batch = losses.Batch(data.x, data.labels, targets, tuple(m.mean((2, 3)) for m in observed.maps))
    theta = {**problem.parameters, **transfer.projections}
    velocity = {name: 0.1 * each for name, each in directions(theta).items()}

    def outer(phi):  # (b)-(d), by torch's SGD
        now = {name: each.clone().requires_grad_() for name, each in theta.items()}
        sgd = torch.optim.SGD(now.values(), options.lr, options.momentum, weight_decay=options.weight_decay)
        for name, each in now.items():
            sgd.state[each]["momentum_buffer"] = velocity[name].clone()
            each.grad = torch.zeros_like(each)  # what a loss does not reach moves on all the same
        weights = transfer._weights(phi, batch)
        for index in range(options.inner_steps + 1):
            sgd.zero_grad(set_to_none=False)
            ce, matched, _ = problem.losses(now, weights, batch)
            (options.beta * matched if index < options.inner_steps else ce).backward()
            sgd.step()
        return problem.losses(now, None, batch)[0].detach()

    gradient = transfer._meta_gradient(problem, theta, velocity, batch)
    assert all(float(each.norm()) > 1e-9 for name, each in gradient.items() if name.startswith("degree"))
    kinds = [f"{kind}.{m}.{layer}" for kind in ("location", "degree") for m in (0, 1) for layer in range(layers)]
    for kind in kinds:  # for itself, or the larger would hide the other
        along = {name: each / each.norm() for name, each in directions(gradient).items() if name.startswith(kind)}
        assert len(along) == 2
        ends = [
            float(outer({**transfer.phi, **{name: transfer.phi[name] + step * each for name, each in along.items()}}))
            for step in (1e-4, -1e-4)
        ]
        slope = sum(float((gradient[name] * each).sum()) for name, each in along.items())
        assert (ends[0] - ends[1]) / 2e-4 == pytest.approx(slope, rel=1e-4, abs=1e-10)


@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize(("teacher", "student"), PAIRS[:3])  # the loop knows maps only
def test_it_equals_the_plain_loop_over_pairs(teacher, student, reduce):
    transfer, data = wire(teacher, student, replace(OPTIONS, pair_reduce=reduce)), public()
    loop = moss_loop.Loop(transfer, torch.float64)
    network = moss_loop._network(SPECS[teacher], start(teacher, 2), torch.float64).eval()
    expected = loop.run(network, start(student), data, generator())
    before = {name: each.clone() for name, each in transfer.phi.items()}
    new, _ = run(transfer, teacher, student, data)
    assert any(not torch.equal(before[name], transfer.phi[name]) for name in before)
    for mine, theirs in ((new, expected), (transfer.phi, loop.phi), (transfer.projections, loop.projections)):
        assert mine.keys() == theirs.keys()
        for name in mine:
            torch.testing.assert_close(mine[name], theirs[name], rtol=0, atol=1e-9, msg=name)


def test_joint_training_makes_loc_vanish_and_bilevel_does_not():
    # one pair whose matching helps: the teacher is what the student becomes, r begins as the identity. In the literal
    # Algorithm 2 phi minimises Loc * L_deg as well, which Loc = 0 does best.
    spec, labels = SPECS["cnn"], torch.arange(24) % 3
    noise, classes = (torch.randn(n, *SHAPE, generator=generator(n), dtype=torch.float64) for n in (24, 3))
    options = Options(epochs=60, batch_size=24, lr=0.01, momentum=0.5, meta_lr=1e-2)
    taught = Wire(spec, spec, (("conv2",),) * 2, replace(options, wire="ce", epochs=30, lr=0.05), generator())
    x = classes[labels] + noise
    untaught = observe(spec, start("cnn"), x, ())
    teacher = observe(spec, taught.run(untaught, start("cnn"), x, labels, generator())[0], x, ("conv2",))
    ends = {}
    for update in ("joint", "bilevel", "frozen"):
        transfer = Wire(spec, spec, (("conv2",),) * 2, replace(options, meta_update=update), generator())
        begin = {name: each.double() for name, each in transfer.phi.items()}
        transfer.projections = {"project.0": torch.eye(8, 9)}
        ends[update] = transfer.run(teacher, start("cnn"), x, labels, generator())[1]
        assert (update == "frozen") == all(torch.equal(begin[name], transfer.phi[name]) for name in begin)
    assert ends["joint"].location < 1e-3 < 0.5 < ends["frozen"].location < ends["bilevel"].location
    assert ends["bilevel"].ce < ends["frozen"].ce < ends["joint"].ce


def test_the_losses_are_what_their_names_say():
    names = ("loc+ce", "loc", "ce", "ce+mse")
    ends = {each: run(wire("resnet", "cnn", replace(OPTIONS, wire=each)), "resnet", "cnn") for each in names}
    weights = [end["conv1.weight"] for end, _ in ends.values()]
    assert all(not torch.equal(one, other) for index, one in enumerate(weights) for other in weights[:index])
    assert ends["ce"][1].matching == 0.0 and ends["loc+ce"][1].matching > 0
    # location alone never sees the classes: the last layer only decays
    decayed = ends["loc"][0]["linear2.weight"] / start("cnn")["linear2.weight"]
    assert float(decayed.max() - decayed.min()) < 1e-9


@pytest.mark.parametrize("kind", ["loc+ce", "ce+mse"])
def test_the_mean_over_pairs_is_their_sum_with_less_weight(kind):
    options = replace(OPTIONS, wire=kind, meta_update="frozen")
    transfer = wire("resnet", "cnn", options)
    pairs = len(transfer.teacher_taps) * len(transfer.student_taps)
    assert pairs > 1
    (mean, report), (less, summed) = (
        run(wire("resnet", "cnn", replace(options, **changes)), "resnet", "cnn")
        for changes in ({"pair_reduce": "mean"}, {"beta": OPTIONS.beta / pairs})
    )
    for name, each in mean.items():
        torch.testing.assert_close(each, less[name], rtol=0, atol=1e-12, msg=name)
    assert report.matching == pytest.approx(summed.matching / pairs, rel=1e-9)


def test_projections_begin_as_the_least_squares_solution_once():
    options = replace(OPTIONS, projection_start="least_squares", epochs=1, batch_size=10, wire="ce+mse", lr=1e-12)
    transfer, data = wire("resnet", "cnn", options), public()
    seen_maps = seen(transfer, "resnet", data)
    at_random = run(wire("resnet", "cnn", replace(options, projection_start="random")), "resnet", "cnn")[1].matching
    begun = run(transfer, "resnet", "cnn")[1].matching
    assert begun < 0.5 * at_random
    problem = losses.Student(SPECS["cnn"], transfer.student_taps, start("cnn"), DOUBLE, generator())
    targets = matching.MapTargets.of(seen_maps.maps, transfer._shapes[1])
    for n, maps in enumerate(problem.maps(data.x, 10)):  # numpy's solution of each, positions as rows
        height, width = maps.shape[2:]
        resized = [torch.nn.functional.interpolate(m, (height, width), mode="bilinear") for m in seen_maps.maps]
        x = torch.cat([maps, torch.ones_like(maps[:, :1])], 1).movedim(1, -1).flatten(0, 2).numpy()
        y = torch.cat(resized, 1).movedim(1, -1).flatten(0, 2).numpy()
        expected = y - x @ np.linalg.lstsq(x, y, rcond=None)[0]
        residual = y - x @ transfer.projections[f"project.{n}"].T.numpy()
        np.testing.assert_allclose(residual, expected, atol=1e-5)
    assert targets.student == transfer._shapes[1]
    before = {name: each.clone() for name, each in transfer.projections.items()}
    run(transfer, "resnet", "cnn", public(seed=8))  # other samples: r has begun
    assert all(torch.allclose(each, before[name], atol=1e-6) for name, each in transfer.projections.items())
    transfer.begin(generator())
    assert not transfer.solved


def test_ce_alone_is_plain_sgd():
    transfer, data = wire("resnet", "mobilenet", replace(OPTIONS, wire="ce")), public()
    network = models.build(SPECS["mobilenet"]).double().train()
    network.load_state_dict(start("mobilenet"))
    sgd = torch.optim.SGD(network.parameters(), OPTIONS.lr, OPTIONS.momentum, weight_decay=OPTIONS.weight_decay)
    order = generator()
    for _ in range(OPTIONS.epochs):
        rows = list(torch.randperm(10, generator=order).split(4))
        for each in rows:
            sgd.zero_grad()
            torch.nn.functional.cross_entropy(network(data.x[each]), data.labels[each]).backward()
            sgd.step()
    new, _ = run(transfer, "resnet", "mobilenet", data)
    for name, each in network.state_dict().items():  # running statistics and counts among them
        torch.testing.assert_close(new[name], each, rtol=0, atol=1e-12, msg=name)


def test_only_ordinary_steps_move_running_statistics():
    # of a first batch, before theta differs by what phi learnt
    data, options = public(4), replace(OPTIONS, epochs=1)
    ends = [
        run(wire("cnn", "resnet", replace(options, meta_update=update)), "cnn", "resnet", data)[0]
        for update in ("bilevel", "frozen")
    ]
    assert all(torch.equal(one, ends[1][name]) for name, one in ends[0].items())
    assert int(ends[0]["stem.bn.num_batches_tracked"]) == 1


def test_teachers_answers_stand_for_labels():
    data = public()
    transfer = wire("resnet", "cnn", replace(OPTIONS, ce_target="teacher"))
    observed = seen(transfer, "resnet", data)
    made_by = {target: replace(OPTIONS, ce_target=target) for target in ("teacher", "labels")}
    ends = [
        wire("resnet", "cnn", made_by[target]).run(observed, start("cnn"), data.x, labels, generator())[0]
        for target, labels in (("teacher", data.labels), ("labels", None), ("teacher", None), ("labels", data.labels))
    ]
    flat = [torch.cat([each.flatten() for each in end.values()]) for end in ends]
    assert torch.equal(flat[0], flat[1]) and torch.equal(flat[0], flat[2]) and not torch.equal(flat[0], flat[3])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"meta_layers": 2},
        {"meta_update": "joint"},
        {"persistent": False},
        {"projection_start": "least_squares", "pair_reduce": "mean"},
    ],
    ids=str,
)
def test_the_state_goes_round_bitwise_and_runs_repeat(options):
    whole, half, resumed = (wire("resnet", "cnn", replace(OPTIONS, **options), seed) for seed in (1, 1, 2))
    run(whole, "resnet", "cnn")
    run(half, "resnet", "cnn")
    tensors, data = half.state()
    resumed.load_state({name: each.clone() for name, each in tensors.items()}, data)
    (one, first), (other, second) = (run(each, "resnet", "cnn", seed=9) for each in (whole, resumed))
    assert first == second and all(torch.equal(one[name], other[name]) for name in one)
    assert whole.state()[1] == resumed.state()[1]
    assert all(torch.equal(each, resumed.state()[0][name]) for name, each in whole.state()[0].items())


def test_a_students_dropout_depends_on_the_stream_alone():
    results = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        results.append(run(wire("resnet", "dropped"), "resnet", "dropped"))
    (one, first), (other, second) = results
    assert first == second and all(torch.equal(each, other[name]) for name, each in one.items())


@pytest.mark.parametrize("options", [{"wire": "ce"}, {"meta_layers": 2}], ids=str)
def test_one_that_diverges_says_so_and_can_begin_anew(options):
    transfer, data = wire("resnet", "cnn", replace(OPTIONS, lr=1e200, **options)), public()
    with pytest.raises(FloatingPointError, match="the transfer has diverged"):
        run(transfer, "resnet", "cnn", data)
    transfer.options = replace(transfer.options, lr=0.05)
    transfer.begin(generator())
    fresh = wire("resnet", "cnn", transfer.options)
    fresh.begin(generator())
    (one, first), (other, second) = (run(each, "resnet", "cnn", data) for each in (transfer, fresh))
    assert first == second and all(torch.equal(one[name], other[name]) for name in one)


def test_float32_states_stay_float32():
    transfer, data = wire("resnet", "cnn"), public()
    state = models.initial_state(SPECS["cnn"], 1)
    new, _ = transfer.run(seen(transfer, "resnet", data), state, data.x, data.labels, generator())
    assert {each.dtype for each in new.values()} == {torch.float32} and double(new).keys() == state.keys()


def test_repeated_steps_count_what_looking_at_each_counts(monkeypatch):
    counter, counts = MacCounter(), []
    transfer, data = wire("cnn", "resnet", replace(OPTIONS, batch_size=2)), public(5)  # the last step has one sample
    for _ in range(2):
        with counter.counting():
            run(transfer, "cnn", "resnet", data)
        counts.append(counter.read())
    monkeypatch.setattr(knowledge_transfer, "counted_once", lambda known, key: nullcontext())
    with counter.counting():
        run(transfer, "cnn", "resnet", data)
    assert counts == [counter.read()] * 2
    assert len(transfer._macs) == 2
