"""Optimisers do what their equations say, resume bit for bit, and schedules are functions of the update."""

import json
import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, ReduceLROnPlateau

from elman import RNN
from elman.errors import ArgumentError, RunError
from elman.training.checkpoint import load_checkpoint, save_checkpoint
from elman.training.optim import (
    OPTIMIZERS,
    SCHEDULES,
    Schedule,
    clip_gradients,
    gradient_norm,
    load_optimizer_tensors,
    make_optimizer,
    optimizer_tensors,
    set_rate,
    skipping,
)


def settings(**changes):
    chosen = {
        "optimizer": "adam",
        "learning_rate": 0.1,
        "momentum": 0.9,
        "weight_decay": 0.01,
        "betas": (0.9, 0.99),
        "schedule": "constant",
        "warmup": 0.25,
        "final_rate": 0.1,
        "decay": 0.5,
        "patience": 1,
    }
    assert changes.keys() <= chosen.keys()
    return SimpleNamespace(**(chosen | changes))


def made():
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))


def train(model, optimizer, updates):
    """Each update sees its own batch, known by its number."""
    for update in updates:
        generator = torch.Generator().manual_seed(update)
        optimizer.zero_grad()
        model(torch.randn(8, 3, generator=generator)).square().mean().backward()
        optimizer.step()


def values(model):
    return [weight.detach().clone() for weight in model.parameters()]


def assert_equal(found, expected):
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def step_once(kind, **changes):
    """Weights before, gradients, weights after one update."""
    model = made()
    optimizer = make_optimizer(model, settings(optimizer=kind, **changes))
    before = values(model)
    train(model, optimizer, [1])
    return before, [weight.grad for weight in model.parameters()], values(model)


def test_incremental_is_a_plain_step_G2():
    before, gradients, after = step_once("incremental", weight_decay=0.5, momentum=0.9)
    expected = [w.add(g, alpha=-0.1) for w, g in zip(before, gradients, strict=True)]
    assert_equal(after, expected)


def test_incremental_has_no_memory_G2():
    model = made()
    train(model, make_optimizer(model, settings(optimizer="incremental")), [1, 2, 3])
    fresh = made()
    for update in (1, 2, 3):
        train(fresh, make_optimizer(fresh, settings(optimizer="incremental")), [update])
    assert_equal(values(model), values(fresh))


@pytest.mark.parametrize("kind", ["sgd", "asgd"])
def test_the_first_step_of_descent(kind):
    before, gradients, after = step_once(kind, weight_decay=0.5)
    for w, g, found in zip(before, gradients, after, strict=True):
        decay = 0.5 if w.dim() == 2 else 0.0
        torch.testing.assert_close(found, w - 0.1 * (g + decay * w), atol=1e-6, rtol=0)


def test_momentum_counts_for_sgd_only():
    for kind, counts in {"sgd": True, "asgd": False}.items():
        both = []
        for momentum in (0.0, 0.9):
            model = made()
            train(model, make_optimizer(model, settings(optimizer=kind, momentum=momentum)), [1, 2])
            both.append(values(model))
        assert counts != all(torch.equal(a, b) for a, b in zip(*both, strict=True))


@pytest.mark.parametrize("decoupled", [False, True])
def test_adam_by_its_equations(decoupled):
    rate, decay, first, second = 0.1, 0.2, 0.9, 0.99
    model, plain = made(), made()
    kind = "adamw" if decoupled else "adam"
    optimizer = make_optimizer(model, settings(optimizer=kind, weight_decay=decay))
    moments = [(torch.zeros_like(w), torch.zeros_like(w)) for w in plain.parameters()]
    for update in range(1, 6):
        train(model, optimizer, [update])
        train(plain, torch.optim.SGD(plain.parameters(), lr=0.0), [update])
        with torch.no_grad():
            for w, (m, v) in zip(plain.parameters(), moments, strict=True):
                strength = decay if w.dim() == 2 else 0.0
                g = w.grad if decoupled else w.grad + strength * w
                m.mul_(first).add_(g, alpha=1 - first)
                v.mul_(second).addcmul_(g, g, value=1 - second)
                if decoupled:
                    w.mul_(1 - rate * strength)
                w -= rate * (m / (1 - first**update)) / ((v / (1 - second**update)).sqrt() + 1e-8)
    for found, expected in zip(values(model), values(plain), strict=True):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_decay_is_for_matrices():
    model = RNN("peephole_lstm", 3, 4)
    optimizer = make_optimizer(model, settings(optimizer="adamw"))
    dims = {
        group["weight_decay"]: {weight.dim() for weight in group["params"]}
        for group in optimizer.param_groups
    }
    assert dims == {0.01: {2}, 0.0: {1}}


def test_frozen_weights_stay_out():
    model = made()
    model[0].requires_grad_(False)
    optimizer = make_optimizer(model, settings())
    assert sum(len(group["params"]) for group in optimizer.param_groups) == 4
    with pytest.raises(ArgumentError, match="nothing to train"):
        make_optimizer(model.requires_grad_(False), settings())
    with pytest.raises(ArgumentError, match="optimizer is 'lion'; it must be one of 'sgd', 'adam'"):
        make_optimizer(made(), settings(optimizer="lion"))


# State.


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_five_updates_saved_loaded_and_five_more_are_ten(tmp_path, kind):
    straight = made()
    train(straight, make_optimizer(straight, settings(optimizer=kind)), range(10))

    first = made()
    optimizer = make_optimizer(first, settings(optimizer=kind))
    train(first, optimizer, range(5))
    tensors, state = optimizer_tensors(optimizer)
    folder = save_checkpoint(
        tmp_path, "update-5", model=first.state_dict(), optimizer=tensors, extra={}, state=state
    )
    saved = load_checkpoint(folder)
    second = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    second.load_state_dict(saved.model)
    resumed = make_optimizer(second, settings(optimizer=kind))
    load_optimizer_tensors(resumed, saved.optimizer, saved.state)
    assert resumed.state_dict()["param_groups"] == optimizer.state_dict()["param_groups"]
    kept = {name: tensor.clone() for name, tensor in saved.optimizer.items()}
    train(second, resumed, range(5, 10))
    assert_equal(values(second), values(straight))
    assert all(torch.equal(saved.optimizer[name], tensor) for name, tensor in kept.items())


def test_an_optimiser_before_its_first_update():
    tensors, state = optimizer_tensors(make_optimizer(made(), settings()))
    assert tensors == {}
    load_optimizer_tensors(make_optimizer(made(), settings()), tensors, json.loads(json.dumps(state)))


def test_an_optimiser_made_without_names():
    model, again = made(), made()
    optimizer = torch.optim.Adam(model.parameters(), amsgrad=True)
    train(model, optimizer, range(3))
    again.load_state_dict(model.state_dict())
    resumed = torch.optim.Adam(again.parameters(), amsgrad=True)
    load_optimizer_tensors(resumed, *optimizer_tensors(optimizer))
    train(model, optimizer, range(3, 6))
    train(again, resumed, range(3, 6))
    assert_equal(values(model), values(again))


def on_a_gpu(model, **changes):
    """The optimiser as it is made for weights of a GPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nn.Parameter, "is_cuda", True)
        return make_optimizer(model, settings(**changes))


def test_momentum_of_a_fused_optimiser_begins_at_zero():
    """Its kernel would leave the memory unset where the first update is skipped."""
    model, plain = made(), made()
    optimizer = on_a_gpu(model, optimizer="sgd")
    assert all(group["fused"] for group in optimizer.param_groups)
    for weight in model.parameters():
        assert torch.equal(optimizer.state[weight]["momentum_buffer"], torch.zeros_like(weight))
    with skipping(optimizer, torch.ones(())):
        train(model, optimizer, [9])
    train(model, optimizer, range(3))
    train(plain, make_optimizer(plain, settings(optimizer="sgd")), range(3))
    for found, expected in zip(values(model), values(plain), strict=True):
        torch.testing.assert_close(found, expected)
    assert not on_a_gpu(made(), optimizer="sgd", momentum=0.0).state


def test_momentum_that_a_checkpoint_lacks_begins_at_zero():
    """Of a CPU before its first update, and of a weight that has had no gradient so far."""
    for lacking in (range(6), [2]):
        model, resumed = made(), made()
        optimizer = make_optimizer(model, settings(optimizer="sgd"))
        train(model, optimizer, [1])
        for place in lacking:
            del optimizer.state[list(model.parameters())[place]]
        fused = on_a_gpu(resumed, optimizer="sgd")
        load_optimizer_tensors(fused, *optimizer_tensors(optimizer))
        resumed.load_state_dict(model.state_dict())
        with skipping(fused, torch.ones(())):
            train(resumed, fused, [9])
        for trained, own in ((model, optimizer), (resumed, fused)):
            train(trained, own, range(3))
        for found, expected in zip(values(resumed), values(model), strict=True):
            torch.testing.assert_close(found, expected)


def test_whether_it_is_fused_belongs_to_the_device():
    makers = (on_a_gpu, lambda model, **changes: make_optimizer(model, settings(**changes)))
    for fused, (make, other) in {True: makers, False: makers[::-1]}.items():
        model = made()
        saved = other(model, optimizer="sgd")
        train(model, saved, [1])
        resumed = make(made(), optimizer="sgd")
        load_optimizer_tensors(resumed, *optimizer_tensors(saved))
        assert {group["fused"] for group in resumed.param_groups} == {fused}


def test_the_state_of_another_model_is_refused():
    model = made()
    optimizer = make_optimizer(model, settings())
    train(model, optimizer, [1])
    tensors, state = optimizer_tensors(optimizer)
    other = make_optimizer(nn.Sequential(nn.Linear(3, 4)), settings())
    with pytest.raises(RunError, match="other weights than those of this model"):
        load_optimizer_tensors(other, tensors, state)
    wider = nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5), nn.Linear(5, 2))
    with pytest.raises(RunError, match=r"'0.exp_avg' has shape \(4, 3\), its weight \(5, 3\)"):
        load_optimizer_tensors(make_optimizer(wider, settings()), tensors, state)


# Schedules.


def rates(total=40, **changes):
    schedule = Schedule(settings(**changes))
    return [schedule.rate(update, total) for update in range(1, total + 1)]


def test_constant_and_warmup():
    assert rates(schedule="constant") == [0.1] * 40
    found = rates(schedule="warmup")
    assert found[:10] == pytest.approx([0.01 * update for update in range(1, 11)])
    assert found[10:] == [0.1] * 30


def test_cosine_agrees_with_torch():
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    reference = CosineAnnealingLR(optimizer, T_max=40, eta_min=0.01)
    expected = []
    for _ in range(40):
        optimizer.step()
        reference.step()
        expected.append(reference.get_last_lr()[0])
    assert rates(schedule="cosine", warmup=0.0) == pytest.approx(expected)


def test_cosine_and_one_cycle_peak_after_the_warmup_and_end_at_the_final_rate():
    for kind in ("cosine", "one-cycle"):
        found = rates(schedule=kind)
        assert found[9] == max(found) == 0.1
        assert found[:10] == sorted(found[:10])
        assert found[9:] == sorted(found[9:], reverse=True)
        assert found[-1] == pytest.approx(0.01)
    low, high = rates(schedule="one-cycle")[0], rates(schedule="one-cycle")[4]
    assert 0.1 / 25 < low < 0.1 / 10
    assert high == pytest.approx((0.1 + 0.1 / 25) / 2)


@pytest.mark.parametrize("kind", SCHEDULES)
@pytest.mark.parametrize("warmup", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("total", [1, 2, 7])
def test_every_schedule_stays_within_its_bounds(kind, warmup, total):
    found = rates(total, schedule=kind, warmup=warmup)
    assert all(0 < rate <= 0.1 * (1 + 1e-12) for rate in found)
    schedule = Schedule(settings(schedule=kind, warmup=warmup))
    assert schedule.rate(total + 5, total) == found[-1]


def test_plateau_agrees_with_torch_and_resumes():
    losses = [3.0, 2.0, 2.0, 2.5, 1.0, math.nan, math.inf, 1.0, 0.9, 1.0, 1.0, 1.0, 1.0]
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    reference = ReduceLROnPlateau(optimizer, factor=0.5, patience=1, threshold=0.0)
    schedule = Schedule(settings(schedule="plateau"))
    for loss in losses:
        before = schedule.rate(1, 10)
        reference.step(loss)
        state = json.loads(json.dumps(schedule.state_dict(), allow_nan=False))
        schedule = Schedule(settings(schedule="plateau"))
        schedule.load_state_dict(state)
        cut = schedule.note(loss)
        assert schedule.rate(1, 10) == pytest.approx(optimizer.param_groups[0]["lr"])
        assert cut == (schedule.rate(1, 10) < before)
    assert schedule.cuts == 4


def test_only_plateau_listens():
    schedule = Schedule(settings(patience=0))
    assert not schedule.note(1.0)
    assert not schedule.note(2.0)
    assert schedule.state_dict() == {"cuts": 0, "waited": 0, "best": None}
    json.dumps(Schedule(settings(schedule="plateau")).state_dict(), allow_nan=False)


def test_wrong_arguments_of_a_schedule():
    with pytest.raises(ArgumentError, match="schedule is 'step'; it must be one of 'constant'"):
        Schedule(settings(schedule="step"))
    with pytest.raises(ArgumentError, match="update is 0"):
        Schedule(settings()).rate(0, 5)


def test_the_rate_reaches_every_group():
    optimizer = make_optimizer(made(), settings())
    set_rate(optimizer, 0.7)
    assert {group["lr"] for group in optimizer.param_groups} == {0.7}


# Clipping.


def with_gradients():
    model = made()
    model(torch.randn(8, 3)).square().sum().backward()
    model[1].bias.grad = None  # some weights may have none
    return model


def gradients(model):
    return [weight.grad.clone() for weight in model.parameters() if weight.grad is not None]


def test_clipping_scales_to_the_limit():
    model = with_gradients()
    weights, before = list(model.parameters()), gradients(model)
    norm = gradient_norm(weights)
    torch.testing.assert_close(norm, torch.cat([gradient.flatten() for gradient in before]).norm())
    clip_gradients(weights, norm, 2 * norm.item())
    assert_equal(gradients(model), before)
    clip_gradients(weights, norm, norm.item() / 4)
    for found, gradient in zip(gradients(model), before, strict=True):
        torch.testing.assert_close(found, gradient / 4)
    torch.testing.assert_close(gradient_norm(weights), norm / 4)


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_a_norm_that_is_not_finite_is_told(wrong):
    model = with_gradients()
    model[2].weight.grad[0, 0] = wrong
    assert not gradient_norm(list(model.parameters())).isfinite()


def test_no_gradients_and_a_wrong_limit():
    assert gradient_norm(list(made().parameters())) == 0.0
    for limit in (0.0, -1.0, math.nan):
        with pytest.raises(ArgumentError, match="limit is"):
            clip_gradients(list(made().parameters()), torch.ones(()), limit)


@pytest.mark.parametrize("kind", ["adam", "adamw"])
def test_a_broken_step_is_skipped_and_leaves_no_trace(kind):
    """The fused kernels look at a number on the device; those of a GPU are the same for every optimiser."""
    model, other = made(), made()
    optimizers = [make_optimizer(one, settings(optimizer=kind)) for one in (model, other)]
    for one, optimizer in zip((model, other), optimizers, strict=True):
        train(one, optimizer, [1])
    before = values(model)
    with skipping(optimizers[0], torch.ones(())):
        train(model, optimizers[0], [2])
    assert_equal(values(model), before)
    with skipping(optimizers[0], torch.zeros(())):
        train(model, optimizers[0], [3])
    train(other, optimizers[1], [3])
    assert_equal(values(model), values(other))
