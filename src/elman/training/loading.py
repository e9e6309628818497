"""The best weights of a run: which checkpoint has them, and a model made of it."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor, nn

from elman.errors import RunError, RunExistsError
from elman.layers.rnn import RNN
from elman.tasks.base import AnyTask
from elman.training.checkpoint import (
    Checkpoint,
    checkpoint_name,
    list_checkpoints,
    load_checkpoint,
    load_state,
    update_of,
)
from elman.training.ties import PREDICTION, check_ties


def best_checkpoint(run: Path) -> Checkpoint:
    """The checkpoint of the best validation, or the newest where there was none; verified.

    Which one that is the newest knows. The link counts where the newest cannot tell, as in a copy that has
    nothing else; and where it is a copy itself, it may be the only good one.
    """
    folders, link = list_checkpoints(run), run / "best"
    try:
        name = _best_name(run, folders[0]) if folders else None
    except RunError:
        name = None
        if not link.exists():
            raise
    if name is None:
        link = link if link.exists() else run / "last"
        if not link.exists():
            raise RunExistsError(f"{run} has no checkpoint yet; let elman train --out {run} --resume go on")
        return _belonging(run, link, None)
    if link.is_symlink() and update_of(link.readlink().name) > update_of(name):
        raise RunError(
            f"{link} points to {link.readlink()}, but the best validation was that of {name}; restore the "
            f"checkpoint, or let elman train --out {run} --resume set the link"
        )
    try:
        return _belonging(run, run / "checkpoints" / name, name)
    except RunError:
        if link.is_symlink() or not link.is_dir():
            raise
        return _belonging(run, link, name)


def _best_name(run: Path, newest: Path) -> str:
    """The name of the best checkpoint, as the newest one knows it."""
    state = load_state(newest)
    check_ties(run, newest, state, PREDICTION)
    position = state["position"]
    return checkpoint_name(position["best_update"] or position["update"])


def _belonging(run: Path, folder: Path, name: str | None) -> Checkpoint:
    """The checkpoint in a folder, which must be the best of this run, and have this name if it is known."""
    checkpoint = load_checkpoint(folder)
    check_ties(run, checkpoint.folder, checkpoint.state, PREDICTION)
    position = checkpoint.state["position"]
    own = checkpoint_name(position["update"])
    if name not in (None, own) or position["best_update"] not in (0, position["update"]):
        wanted = name or checkpoint_name(position["best_update"])
        raise RunError(f"{folder} is the checkpoint {own}, not the best, {wanted}; restore that one")
    return checkpoint


def load_weights(checkpoint: Checkpoint, task: AnyTask) -> nn.Module:
    """The model of a run with the weights of a checkpoint, on the CPU."""
    try:
        return model_with(checkpoint.model, task)
    except RuntimeError as error:
        raise misfit(checkpoint, error) from None


def model_with(weights: Mapping[str, Tensor], task: AnyTask) -> nn.Module:
    """The model of a task with these weights, on the CPU; a ``RuntimeError`` where they do not fit."""
    model: nn.Module = task.build_model()
    for module in model.modules():
        if isinstance(module, RNN) and module.backend == "triton":  # asked for where it was trained
            module.backend = "auto"
    model.load_state_dict(weights)
    return model.eval()


def misfit(checkpoint: Checkpoint, error: Exception) -> RunError:
    """What is said of weights that the settings of their run do not describe."""
    return RunError(f"{checkpoint.folder} does not fit the settings of the run: {error}")
