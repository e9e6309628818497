"""A training goes on from a checkpoint in which weights of a cell were one tensor."""

import copy
from itertools import islice

import pytest
import torch

from tiny import figures, trainer_of

JOINED = {
    "layer_norm_lstm": ("gain_h", ("gain_i", "gain_f", "gain_o", "gain_z")),
    "mgu_original": ("W_h", ("W_h", "U")),
}
KINDS = {
    "adamw": {},
    "sgd": {"training.optimizer": "sgd", "training.momentum": 0.9, "training.learning_rate": 0.1},
    "plain": {"training.optimizer": "sgd", "training.learning_rate": 0.1},
    "averaged": {"training.averaging": "ema"},
}


def joined(tensors, whole, parts):
    """Tensors by names of weights in the form of the earlier version."""
    found = {}
    for name, tensor in tensors.items():
        cell, _, own = name.rpartition(".")
        if own == parts[0]:
            found[f"{cell}.{whole}"] = torch.cat([tensors[f"{cell}.{part}"] for part in parts], -1)
        elif own not in parts:
            found[name] = tensor
    return found


def earlier(snapshot, whole, parts):
    """What the earlier version would have saved."""
    extra, state = snapshot["extra"], snapshot["state"]["optimizer"]
    raw = {n.removeprefix("weights."): t for n, t in extra.items() if n.startswith("weights.")}
    others = {n: t for n, t in extra.items() if not n.startswith("weights.")}
    extra = others | {f"weights.{n}": t for n, t in joined(raw, whole, parts).items()}
    names = [name for group in state["groups"] for name in group["param_names"]]
    shapes = {name: torch.zeros(1) for name in names}
    order = list(joined(shapes, whole, parts))
    order.reverse()  # the order of the earlier version was another one
    kept = {}
    for entry, value in snapshot["optimizer"].items():
        place, _, key = entry.partition(".")
        kept.setdefault(key, {})[names[int(place)]] = value
    groups, optimizer, first = [], {}, 0
    for group in state["groups"]:
        own = [n for n in order if n in joined({m: shapes[m] for m in group["param_names"]}, whole, parts)]
        groups.append({**group, "params": list(range(first, first + len(own))), "param_names": own})
        for key, values in kept.items():
            one = {n: v for n, v in values.items() if v.dim() == 0}
            firsts = {n: v for n, v in one.items() if n.endswith(f".{parts[0]}")}
            one |= {f"{n.rpartition('.')[0]}.{whole}": v for n, v in firsts.items()}
            many = one | joined({n: v for n, v in values.items() if v.dim()}, whole, parts)
            optimizer |= {f"{first + i}.{key}": many[name] for i, name in enumerate(own) if name in many}
        first += len(own)
    saved = snapshot["state"] | {"optimizer": {**state, "groups": groups}}
    model = joined(snapshot["model"], whole, parts)
    return {"model": model, "optimizer": optimizer, "extra": extra, "state": saved}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cell", JOINED)
def test_a_training_of_an_earlier_version_goes_on(cell, kind, data):
    changes = {"training.max_steps": 9, "training.validate_every": 4, "model.cell": cell} | KINDS[kind]
    trainer, other = trainer_of("tag", data, changes), trainer_of("tag", data, changes)
    before = list(islice(trainer.run(), 5))
    snapshot = copy.deepcopy(trainer.snapshot())
    old = earlier(snapshot, *JOINED[cell])
    assert old["model"].keys() != snapshot["model"].keys()
    following = [figures(event) for event in trainer.run()]
    assert len(before) == 5
    assert following
    other.restore(**old)
    assert [figures(event) for event in other.run()] == following
