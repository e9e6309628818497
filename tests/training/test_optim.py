"""Optimisers do what their equations say, resume bit for bit, and schedules are functions of the update."""

import json
import math

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, ReduceLROnPlateau

from elman import RNN
from elman.errors import ArgumentError, RunError, UnknownNameError
from elman.registry import OPTIMIZERS, SCHEDULES, construct, register
from elman.training.checkpoint import load_checkpoint, save_checkpoint
from elman.training.optim import (
    clip_gradients,
    gradient_norm,
    load_optimizer_tensors,
    make_optimizer,
    optimizer_tensors,
    set_rate,
    skipping,
)
from elman.training.schedules.base import Schedule

OPTIONS = {"momentum": 0.9, "weight_decay": 0.01, "betas": (0.9, 0.99)}
SHAPES = {"warmup": 0.25, "final_rate": 0.1, "decay": 0.5, "plateau": 1}


def read_by(registry, name, usual, changes):
    """Of usual options, those that a part takes; changes must be among them."""
    assert changes.keys() <= usual.keys()
    return {key: value for key, value in (usual | changes).items() if key in registry.options(name)}


def optimizer_of(model, kind="adam", learning_rate=0.1, **changes):
    return make_optimizer(model, kind, learning_rate, read_by(OPTIMIZERS, kind, OPTIONS, changes))


def schedule_of(kind="constant", **changes):
    options = read_by(SCHEDULES, kind, SHAPES, changes)
    return construct(SCHEDULES.find(kind), options=options, named="training.schedule_options")


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
    optimizer = optimizer_of(model, kind, **changes)
    before = values(model)
    train(model, optimizer, [1])
    return before, [weight.grad for weight in model.parameters()], values(model)


def test_incremental_is_a_plain_step_G2():
    before, gradients, after = step_once("incremental")
    expected = [w.add(g, alpha=-0.1) for w, g in zip(before, gradients, strict=True)]
    assert_equal(after, expected)


@pytest.mark.parametrize("option", [{"weight_decay": 0.5}, {"momentum": 0.9}, {"betas": (0.9, 0.99)}])
def test_incremental_has_no_options_G2(option):
    """One that would make it something else is refused, not left out in silence."""
    with pytest.raises(ArgumentError, match=rf"has '{next(iter(option))}', unknown to Incremental"):
        make_optimizer(made(), "incremental", 0.1, option)
    assert OPTIMIZERS.options("incremental").keys() == {"groups", "lr"}


def test_incremental_has_no_memory_G2():
    model = made()
    train(model, optimizer_of(model, "incremental"), [1, 2, 3])
    fresh = made()
    for update in (1, 2, 3):
        train(fresh, optimizer_of(fresh, "incremental"), [update])
    assert_equal(values(model), values(fresh))


@pytest.mark.parametrize("kind", ["sgd", "asgd"])
def test_the_first_step_of_descent(kind):
    before, gradients, after = step_once(kind, weight_decay=0.5)
    for w, g, found in zip(before, gradients, after, strict=True):
        decay = 0.5 if w.dim() == 2 else 0.0
        torch.testing.assert_close(found, w - 0.1 * (g + decay * w), atol=1e-6, rtol=0)


def test_momentum_counts_for_sgd_only():
    both = []
    for momentum in (0.0, 0.9):
        model = made()
        train(model, optimizer_of(model, "sgd", momentum=momentum), [1, 2])
        both.append(values(model))
    assert not all(torch.equal(a, b) for a, b in zip(*both, strict=True))
    assert OPTIMIZERS.readers_of("momentum") == ["sgd"]
    with pytest.raises(ArgumentError, match="has 'momentum', unknown to Asgd"):
        make_optimizer(made(), "asgd", 0.1, {"momentum": 0.9})


@pytest.mark.parametrize("decoupled", [False, True])
def test_adam_by_its_equations(decoupled):
    rate, decay, first, second = 0.1, 0.2, 0.9, 0.99
    model, plain = made(), made()
    kind = "adamw" if decoupled else "adam"
    optimizer = optimizer_of(model, kind, weight_decay=decay)
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
    optimizer = optimizer_of(model, "adamw")
    dims = {
        group["weight_decay"]: {weight.dim() for weight in group["params"]}
        for group in optimizer.param_groups
    }
    assert dims == {0.01: {2}, 0.0: {1}}


def test_frozen_weights_stay_out():
    model = made()
    model[0].requires_grad_(False)
    optimizer = optimizer_of(model)
    assert sum(len(group["params"]) for group in optimizer.param_groups) == 4
    with pytest.raises(ArgumentError, match="nothing to train"):
        optimizer_of(model.requires_grad_(False))
    known = "adam, adamw, asgd, incremental, sgd"
    with pytest.raises(UnknownNameError, match=f"no optimizer named 'lion'; Known: {known}"):
        make_optimizer(made(), "lion", 0.1)


# State.


@pytest.mark.parametrize("kind", [*OPTIMIZERS.names(), "torch.optim:RMSprop", "torch.optim:NAdam"])
def test_five_updates_saved_loaded_and_five_more_are_ten(tmp_path, kind):
    straight = made()
    train(straight, optimizer_of(straight, kind), range(10))

    first = made()
    optimizer = optimizer_of(first, kind)
    train(first, optimizer, range(5))
    tensors, state = optimizer_tensors(optimizer)
    folder = save_checkpoint(
        tmp_path, "update-5", model=first.state_dict(), optimizer=tensors, extra={}, state=state
    )
    saved = load_checkpoint(folder)
    second = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    second.load_state_dict(saved.model)
    resumed = optimizer_of(second, kind)
    load_optimizer_tensors(resumed, saved.optimizer, saved.state)
    assert resumed.state_dict()["param_groups"] == optimizer.state_dict()["param_groups"]
    kept = {name: tensor.clone() for name, tensor in saved.optimizer.items()}
    train(second, resumed, range(5, 10))
    assert_equal(values(second), values(straight))
    assert all(torch.equal(saved.optimizer[name], tensor) for name, tensor in kept.items())


def test_an_optimiser_before_its_first_update():
    tensors, state = optimizer_tensors(optimizer_of(made()))
    assert tensors == {}
    load_optimizer_tensors(optimizer_of(made()), tensors, json.loads(json.dumps(state)))


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


def on_a_gpu(model, kind, **changes):
    """The optimiser as it is made for weights of a GPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nn.Parameter, "is_cuda", True)
        return optimizer_of(model, kind, **changes)


def test_momentum_of_a_fused_optimiser_begins_at_zero():
    """Its kernel would leave the memory unset where the first update is skipped."""
    model, plain = made(), made()
    optimizer = on_a_gpu(model, "sgd")
    assert all(group["fused"] for group in optimizer.param_groups)
    for weight in model.parameters():
        assert torch.equal(optimizer.state[weight]["momentum_buffer"], torch.zeros_like(weight))
    with skipping(optimizer, torch.ones(())):
        train(model, optimizer, [9])
    train(model, optimizer, range(3))
    train(plain, optimizer_of(plain, "sgd"), range(3))
    for found, expected in zip(values(model), values(plain), strict=True):
        torch.testing.assert_close(found, expected)
    assert not on_a_gpu(made(), "sgd", momentum=0.0).state


def test_momentum_that_a_checkpoint_lacks_begins_at_zero():
    """Of a CPU before its first update, and of a weight that has had no gradient so far."""
    for lacking in (range(6), [2]):
        model, resumed = made(), made()
        optimizer = optimizer_of(model, "sgd")
        train(model, optimizer, [1])
        for place in lacking:
            del optimizer.state[list(model.parameters())[place]]
        fused = on_a_gpu(resumed, "sgd")
        load_optimizer_tensors(fused, *optimizer_tensors(optimizer))
        resumed.load_state_dict(model.state_dict())
        with skipping(fused, torch.ones(())):
            train(resumed, fused, [9])
        for trained, own in ((model, optimizer), (resumed, fused)):
            train(trained, own, range(3))
        for found, expected in zip(values(resumed), values(model), strict=True):
            torch.testing.assert_close(found, expected)


def test_whether_it_is_fused_belongs_to_the_device():
    makers = (on_a_gpu, optimizer_of)
    for fused, (make, other) in {True: makers, False: makers[::-1]}.items():
        model = made()
        saved = other(model, "sgd")
        train(model, saved, [1])
        resumed = make(made(), "sgd")
        load_optimizer_tensors(resumed, *optimizer_tensors(saved))
        assert {group["fused"] for group in resumed.param_groups} == {fused}


def test_the_state_of_another_model_is_refused():
    model = made()
    optimizer = optimizer_of(model)
    train(model, optimizer, [1])
    tensors, state = optimizer_tensors(optimizer)
    other = optimizer_of(nn.Sequential(nn.Linear(3, 4)))
    with pytest.raises(RunError, match="other weights than those of this model"):
        load_optimizer_tensors(other, tensors, state)
    wider = nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5), nn.Linear(5, 2))
    with pytest.raises(RunError, match=r"'0.exp_avg' has shape \(4, 3\), its weight \(5, 3\)"):
        load_optimizer_tensors(optimizer_of(wider), tensors, state)


# Schedules.


def rates(kind, total=40, **changes):
    schedule = schedule_of(kind, **changes)
    return [schedule.rate(0.1, update, total) for update in range(1, total + 1)]


def test_constant_and_warmup():
    assert rates("constant") == [0.1] * 40
    found = rates("warmup")
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
    assert rates("cosine", warmup=0.0) == pytest.approx(expected)


def test_cosine_and_one_cycle_peak_after_the_warmup_and_end_at_the_final_rate():
    for kind in ("cosine", "one-cycle"):
        found = rates(kind)
        assert found[9] == max(found) == 0.1
        assert found[:10] == sorted(found[:10])
        assert found[9:] == sorted(found[9:], reverse=True)
        assert found[-1] == pytest.approx(0.01)
    low, high = rates("one-cycle")[0], rates("one-cycle")[4]
    assert 0.1 / 25 < low < 0.1 / 10
    assert high == pytest.approx((0.1 + 0.1 / 25) / 2)


@pytest.mark.parametrize("kind", SCHEDULES.names())
@pytest.mark.parametrize("warmup", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("total", [1, 2, 7])
def test_every_schedule_stays_within_its_bounds(kind, warmup, total):
    found = rates(kind, total, warmup=warmup)
    assert all(0 < rate <= 0.1 * (1 + 1e-12) for rate in found)
    schedule = schedule_of(kind, warmup=warmup)
    assert schedule.rate(0.1, total + 5, total) == found[-1]


def test_plateau_agrees_with_torch_and_resumes():
    losses = [3.0, 2.0, 2.0, 2.5, 1.0, math.nan, math.inf, 1.0, 0.9, 1.0, 1.0, 1.0, 1.0]
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    reference = ReduceLROnPlateau(optimizer, factor=0.5, patience=1, threshold=0.0)
    schedule = schedule_of("plateau")
    for loss in losses:
        before = schedule.rate(0.1, 1, 10)
        reference.step(loss)
        state = json.loads(json.dumps(schedule.state_dict(), allow_nan=False))
        schedule = schedule_of("plateau")
        schedule.load_state_dict(state)
        cut = schedule.note(loss)
        assert schedule.rate(0.1, 1, 10) == pytest.approx(optimizer.param_groups[0]["lr"])
        assert cut == (schedule.rate(0.1, 1, 10) < before)
    assert schedule.cuts == 4


@pytest.mark.parametrize("kind", SCHEDULES.names())
def test_only_plateau_listens(kind):
    schedule = schedule_of(kind, plateau=0)
    before = [schedule.rate(0.1, update, 9) for update in range(1, 10)]
    assert not schedule.note(1.0)
    listens = schedule.note(2.0)
    assert listens == (kind == "plateau")
    assert ([schedule.rate(0.1, update, 9) for update in range(1, 10)] == before) != listens
    state = json.loads(json.dumps(schedule.state_dict(), allow_nan=False))
    assert state == ({"cuts": 1, "waited": 0, "best": 1.0} if listens else {})
    schedule.load_state_dict(state)
    json.dumps(schedule_of(kind).state_dict(), allow_nan=False)


def test_wrong_arguments_of_a_schedule():
    with pytest.raises(
        UnknownNameError, match="no schedule named 'step'; Known: constant, cosine, one-cycle"
    ):
        schedule_of("step")
    with pytest.raises(ArgumentError, match="update is 0"):
        schedule_of().rate(0.1, 0, 5)
    with pytest.raises(ArgumentError, match="schedule_options has 'warm', unknown to OneCycle; did you mean"):
        construct(SCHEDULES.find("one-cycle"), options={"warm": 1}, named="training.schedule_options")


def test_names_of_schedules_have_hyphens():
    assert SCHEDULES.names() == ["constant", "cosine", "one-cycle", "plateau", "warmup"]
    with pytest.raises(UnknownNameError, match="did you mean 'one-cycle'"):
        SCHEDULES.find("one_cycle")
    usual = {name: SCHEDULES.options(name) for name in SCHEDULES.names()}
    assert usual["one-cycle"] == usual["cosine"] == {"warmup": 0.05, "final_rate": 0.01}
    assert usual["plateau"] == {"decay": 0.5, "plateau": 0}
    assert usual["warmup"] == {"warmup": 0.05}
    assert usual["constant"] == {}


class Steps(Schedule):
    """Halved after every ``every`` updates, and once more with every validation."""

    def __init__(self, *, every=2):
        self.every, self.noted = every, 0

    def share(self, update, total):
        return 0.5 ** ((update - 1) // self.every + self.noted)

    def note(self, loss):
        self.noted += 1
        return True

    def state_dict(self):
        return {"noted": self.noted}

    def load_state_dict(self, state):
        self.noted = state["noted"]


def test_a_users_schedule_writes_its_share_alone(monkeypatch):
    monkeypatch.setattr(SCHEDULES, "_added", {})
    register("steps", Steps)
    schedule = construct(SCHEDULES.find("steps"), options={"every": 3}, named="training.schedule_options")
    assert [schedule.rate(0.8, update, 6) for update in range(1, 9)] == [0.8] * 3 + [0.4] * 5
    assert schedule.note(1.0)
    again = Steps(every=3)
    again.load_state_dict(json.loads(json.dumps(schedule.state_dict())))
    assert again.rate(0.8, 1, 6) == 0.4
    with pytest.raises(NotImplementedError, match="Schedule writes no share"):
        Schedule().rate(0.1, 1, 5)


# Optimisers of others.


class Signs(torch.optim.Optimizer):
    """Steps of one size, with momentum; decay is a setting of each group."""

    def __init__(self, groups, lr, *, weight_decay=0.0, memory=0.5):
        super().__init__(groups, {"lr": lr, "weight_decay": weight_decay, "memory": memory})

    def step(self):
        with torch.no_grad():
            for group in self.param_groups:
                for weight in group["params"]:
                    state = self.state[weight]
                    state["mean"] = state.get("mean", 0) * group["memory"] + weight.grad
                    state["steps"] = state.get("steps", 0) + 1
                    weight.mul_(1 - group["lr"] * group["weight_decay"])
                    weight.sub_(state["mean"].sign(), alpha=group["lr"])


class Rateless(torch.optim.Optimizer):
    def __init__(self, groups, *, weight_decay=0.0):
        super().__init__(groups, {"weight_decay": weight_decay})


@pytest.fixture
def optimizers(monkeypatch):
    monkeypatch.setattr(OPTIMIZERS, "_added", {})
    register("signs", Signs)
    register("rateless", Rateless)


@pytest.mark.parametrize("kind", ["RMSprop", "Adamax", "NAdam", "Adagrad"])
def test_any_class_of_torch_is_an_optimiser(kind):
    model, plain = made(), made()
    optimizer = make_optimizer(model, f"torch.optim:{kind}", 0.05, {"weight_decay": 0.3})
    assert type(optimizer) is getattr(torch.optim, kind)
    assert {group["lr"] for group in optimizer.param_groups} == {0.05}
    matrices = [weight for weight in plain.parameters() if weight.dim() > 1]
    vectors = [weight for weight in plain.parameters() if weight.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.3}, {"params": vectors, "weight_decay": 0.0}]
    expected = getattr(torch.optim, kind)(groups, lr=0.05)
    for one, own in ((model, optimizer), (plain, expected)):
        train(one, own, range(4))
    assert_equal(values(model), values(plain))


def test_options_of_a_class_of_torch():
    name = "torch.optim:RMSprop"
    optimizer = make_optimizer(made(), name, 0.05, {"alpha": 0.5, "momentum": 0.25})
    assert {(group["alpha"], group["momentum"]) for group in optimizer.param_groups} == {(0.5, 0.25)}
    with pytest.raises(
        ArgumentError, match=r"optimizer_options has 'alhpa', unknown to RMSprop; did you mean"
    ):
        make_optimizer(made(), name, 0.05, {"alhpa": 0.5})
    with pytest.raises(UnknownNameError, match="did you mean 'RMSprop'"):
        make_optimizer(made(), "torch.optim:RMSporp", 0.05)
    with pytest.raises(ArgumentError, match="has 'weight_decay', unknown to Rprop"):
        make_optimizer(made(), "torch.optim:Rprop", 0.05, {"weight_decay": 0.5})
    with pytest.raises(
        UnknownNameError, match=r"'torch\.nn:Linear' is no optimizer; derive it from Optimizer"
    ):
        make_optimizer(made(), "torch.nn:Linear", 0.05)


@pytest.mark.usefixtures("optimizers")
def test_a_users_optimiser_and_what_it_must_take():
    model = made()
    before = values(model)
    train(model, make_optimizer(model, "signs", 0.125, {"weight_decay": 0.5, "memory": 0.0}), [1])
    for weight, old in zip(model.parameters(), before, strict=True):
        shrunk = old * (1 - 0.125 * 0.5) if old.dim() == 2 else old
        torch.testing.assert_close(weight.detach(), shrunk - 0.125 * weight.grad.sign())
    with pytest.raises(ArgumentError, match="Rateless takes no lr"):
        make_optimizer(made(), "rateless", 0.1)


def test_the_rate_reaches_every_group():
    optimizer = optimizer_of(made())
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
    optimizers = [optimizer_of(one, kind) for one in (model, other)]
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
