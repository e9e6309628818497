"""The one door to a trained model: ``elman.load(run).predict(texts)``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from elman.config import Config, DecodingSettings, changed, check_read, parse_toml, to_toml, validate
from elman.errors import ArgumentError, DataError, EmptyError, shortened
from elman.inspection.alignment import Alignment
from elman.metrics.calibration import Calibration
from elman.storage.files import write_text
from elman.tasks.base import AnyTask, Chooser, Measures, Scorer, calibrated, chosen_metric
from elman.tasks.examples import encoded
from elman.tasks.generation import Generation, Partners
from elman.tasks.lm_adaptation import adaptive_reader
from elman.tasks.predictions import Prediction
from elman.tasks.withholding import withhold
from elman.tensors.transfer import find_device
from elman.text.asked import checked
from elman.text.files import Repairs
from elman.text.records import Record
from elman.training.learned import learned_files, load_learned
from elman.training.loading import best_checkpoint, load_weights, model_with
from elman.training.loop import count_parameters
from elman.training.settings import check_code, make_task, read_config, settings_class
from elman.training.sources import Reading, asked_source, found, paired
from elman.trust import Trust

if TYPE_CHECKING:
    from elman.inspection.inspection import Inspection, Question
    from elman.tasks.streaming import Stream

GPU_TIMES = 8  # as many positions go through a GPU at once: it is idle in between
Scores = Callable[[Sequence[str]], list[list[tuple[str, float]]]]  # as of a ``Scorer``
SHOWN = 6  # labels that its representation names


class Predictor:
    """A run that is ready for use: its task, its settings, and its model with the best weights.

    run: its folder; None where ``elman.fit`` was to keep none. partners: other models that decide with it
    what is written. best: the value of the metric that chose its weights, if it is known.

    It can be pickled and copied: settings, vocabularies and weights go along, the run does not.

    >>> elman.load("runs/tagger").details(["the cat runs"])[0].probabilities  # doctest: +SKIP
    [0.99, 0.98, 0.97]
    """

    def __init__(
        self,
        run: Path | None,
        task: AnyTask,
        model: nn.Module,
        partners: Partners = (),
        best: float | None = None,
    ) -> None:
        self.run, self.task, self.model, self.partners, self.best = run, task, model, partners, best

    def __repr__(self) -> str:
        """
        >>> elman.load("runs/names")  # doctest: +SKIP
        <Predictor: classify, lstm 128 × 1, both directions, 204,818 parameters, 18 labels, accuracy 0.86, …>
        """
        names = self.task.label_names
        parts = [self.config.task, self.task.describe(self.model)[0]]
        parts.append(f"{count_parameters(self.model):,} parameters")
        if names is not None:
            shown = ", ".join(shortened(name, 20) for name in names[:SHOWN])
            parts.append(f"{len(names):,} labels ({shown}{', …' * (len(names) > SHOWN)})")
        if self.best is not None:
            parts.append(f"best {chosen_metric(self.task)[0]} {self.best:.4g}")
        return f"<Predictor: {', '.join(parts)}, {'kept in no run' if self.run is None else self.run}>"

    def __getstate__(self) -> dict[str, Any]:
        if self.partners:
            raise ArgumentError("an ensemble cannot be pickled or copied; pickle the names of its runs")
        weights = {name: weight.cpu().numpy() for name, weight in self.model.state_dict().items()}
        texts = {"config": to_toml(self.config), "learned": learned_files(self.task)}
        more = {"run": self.run, "best": self.best, "batch": self.task.together}
        return {"weights": weights, **texts, **more, "calibration": self.task.calibration}

    def __setstate__(self, state: dict[str, Any]) -> None:
        tables = parse_toml(state["config"], "a pickle")
        task = make_task(validate(settings_class(str(tables["task"])), tables))
        with TemporaryDirectory(prefix="elman-") as folder:
            for name, text in state["learned"].items():
                write_text(Path(folder) / name, text)
            load_learned(task, Path(folder))
        weights = {name: torch.from_numpy(np.array(weight)) for name, weight in state["weights"].items()}
        size_batches(task, state.get("batch"), 1)
        task = calibrated(task, state.get("calibration"))
        Predictor.__init__(self, state["run"], task, model_with(weights, task), best=state["best"])

    @property
    def config(self) -> Config:
        return self.task.config

    @property
    def decoding(self) -> DecodingSettings | None:
        """How it writes; None where it does not."""
        found: DecodingSettings | None = getattr(self.config, "decoding", None)
        return found

    @property
    def labels(self) -> list[str]:
        """The labels or tags that it tells apart, or the classes that it writes from.

        A task that has none has no such attribute.
        """
        if self.task.label_names is None:
            raise AttributeError(f"{self._named()}, which has no labels")
        return list(self.task.label_names)

    def predict_proba(
        self, texts: Iterable[str | Sequence[str]]
    ) -> NDArray[np.float64] | list[NDArray[np.float64]]:
        """How probable each of ``labels`` is: an array (N, K), or of a tagger one (T, K) a text.

        They are calibrated. Rows sum to 1, unless texts have several labels. Of a text without a word, the
        row says how frequent the labels are in training.
        """
        rows = self.chooser("has no probabilities of labels; use details").chances(
            self.model, self._asked(texts)
        )
        return rows if self.task.listed else np.array(rows).reshape(len(rows), len(self.labels))

    def predict(
        self,
        texts: Iterable[str | Sequence[str]],
        *,
        details: bool = False,
        trace: int | None = None,
        threshold: float | None = None,
    ) -> list[str | list[str]] | list[Prediction]:
        """One answer a text: a label, a list of tags, a text; with ``details``, all that is known about it.

        A tagger takes lists of words, too.
        ``trace`` is for models that write: the details tell every step of it, with so many of the most
        probable tokens, and where attention looked.
        ``threshold`` is for models that choose labels: ``?`` stands where the answer is less probable.
        """
        found = self.details(texts, trace=trace, threshold=threshold)
        return found if details or trace is not None else [one.value for one in found]

    def details(
        self,
        texts: Iterable[str | Sequence[str]],
        *,
        trace: int | None = None,
        threshold: float | None = None,
    ) -> list[Prediction]:
        """All that is known about each answer; ``trace`` and ``threshold`` are those of predict."""
        if trace is not None:
            self.generation("writes nothing; no trace")
        check_threshold(self, threshold)
        found = self.task.predict(self.model, self._asked(texts), partners=self.partners, trace=trace)
        return found if threshold is None else [withhold(one, threshold) for one in found]

    def read(
        self, path: str | Path, said: Collection[str] = (), repairs: Repairs | None = None
    ) -> Iterator[Record]:
        """What a file asks, one record a question; ``said`` are the settings of its layout that are meant.

        A table, JSON Lines or a column file, known by its name, is read as those of training, though the
        answers may be missing; anything else is one text a line.
        """
        source = asked_source(self.config.data, str(path), said)
        return self.task.read(source, Repairs() if repairs is None else repairs)

    def answers(
        self, records: Sequence[Record], *, trace: int | None = None, threshold: float | None = None
    ) -> Iterator[tuple[Record, Prediction]]:
        """Each record of ``read`` with what is known about its answer.

        A record that cannot be answered is an error with its place, after the answers to those before it.
        """
        check_threshold(self, threshold)
        asked = [record.fields[self.task.roles[0]] for record in records]
        try:
            found = self.task.predict(self.model, asked, partners=self.partners, trace=trace)
        except DataError as error:  # a task counts what it was given
            place = (error.line or 1) - 1
            if place:
                yield from self.answers(records[:place], trace=trace, threshold=threshold)
            error.path, error.line = records[place].path, records[place].line
            raise
        told = found if threshold is None else (withhold(one, threshold) for one in found)
        yield from zip(records, told, strict=True)

    def check_attention(self) -> None:
        """A model without attention has no alignment: that is an error."""
        generation = self.task.generation
        if generation is None or not generation.writer.attends:
            raise ArgumentError(
                f"{self._named()} without attention: it has no alignment to show; "
                "train seq2seq with model.attention = 'additive'"
            )

    def alignment(self, answer: Prediction) -> Alignment:
        """Which source tokens each output token looked at; ``answer`` is one of ``predict(…, trace=0)``.

        An ensemble looks where its first model looks.
        """
        self.check_attention()
        looked = None if answer.written is None else answer.written.looked
        if looked is None or looked.attention is None:
            raise ArgumentError("the answer has no attention; ask predict for it with trace=0")
        fields = self.task.text_fields
        return Alignment(
            fields["source"].readable(looked.source_tokens),
            fields["target"].readable(looked.output_tokens),
            looked.attention,
            title=str(answer.asked),
        )

    def evaluate(
        self,
        path: str | Path,
        target: str | Path | None = None,
        said: Collection[str] = (),
        *,
        threshold: float | None = None,
    ) -> tuple[Measures, Repairs]:
        """Measures on a file laid out as the training data, or on ``builtin:NAME/test``; and repairs.

        A folder or a pattern means all of its files; ``said`` is that of ``read``.

        With ``target``, the two are line-aligned files. Losses are those of the model alone, also in an
        ensemble; what is written is the ensemble's. With ``threshold``, there is also the accuracy of answers
        that are at least so probable, and which share of all they are.
        """
        check_threshold(self, threshold)
        path, target = str(path), None if target is None else str(target)
        files = paired(found(path), target, "the file to evaluate")
        reading = Reading(self.task, files, said=said)
        examples = encoded(self.task, reading)
        if not len(examples):
            raise EmptyError("no examples", path=path, remedy="give a file laid out as the training data")
        if threshold is not None:
            measures = self.chooser().evaluate(self.model, examples, threshold=threshold)
        else:
            measures = self.task.evaluate(self.model, examples, partners=self.partners)
        return measures, reading.repairs

    def score(self, texts: Iterable[str]) -> list[list[tuple[str, float]]]:
        """For each text its tokens, the end marker included, with their natural-log probabilities."""
        return self.scorer().score(self.model, checked(texts, "texts"))

    def adapted(self) -> Scores | None:
        """What scores texts in turn and learns from them meanwhile, as ``evaluation.*`` says; or None."""
        reader = adaptive_reader(self.model, self.config)
        return None if reader is None else partial(self.scorer().score, self.model, reader=reader)

    def generate(self, prompts: Iterable[str], *, trace: int | None = None) -> list[Prediction]:
        """What each prompt, class or source becomes, as ``decoding.*`` says; ``trace`` is that of predict."""
        self.generation()
        return self.details(checked(prompts, "prompts"), trace=trace)

    def inspect(self, question: str | Question) -> Inspection:
        """All that happens inside while it reads or writes a text: ``inspect(text).save("page.html")``."""
        from elman.inspection.inspection import Question, inspect  # alone needs it

        if self.partners:
            raise ArgumentError("an ensemble has no one inside; inspect its runs one by one")
        [text] = checked([question.text if isinstance(question, Question) else question], "text")
        asked = question if isinstance(question, Question) else Question(text)
        return inspect(self.task, self.model, asked, run="" if self.run is None else str(self.run))

    def stream(self) -> Stream:
        """What reads a text as it comes, token by token, with its state as a value."""
        from elman.tasks.streaming import stream_of  # alone needs it

        if self.partners:
            raise ArgumentError("an ensemble has no one state; stream with its runs one by one")
        return stream_of(self.task, self.model)

    def generation(self, cannot: str = "cannot generate; use predict") -> Generation[Any]:
        """How its models write; an error where they do not."""
        if self.task.generation is None:
            raise ArgumentError(f"{self._named()}, which {cannot}")
        return self.task.generation

    def scorer(self) -> Scorer:
        """How its models score texts; an error where they do not."""
        if self.task.scorer is None:
            raise ArgumentError(f"{self._named()}, which cannot score; use predict")
        return self.task.scorer

    def chooser(self, cannot: str = "chooses among no labels; it takes no threshold") -> Chooser:
        """How its models choose among labels; an error where they do not."""
        if self.task.chooser is None:
            raise ArgumentError(f"{self._named()}, which {cannot}")
        return self.task.chooser

    def with_settings(self, settings: Mapping[str, Any]) -> Predictor:
        """The same model with other settings of what training does not fix."""
        task = self.task.reconfigured(changed(self.config, settings))
        return Predictor(self.run, task, self.model, self.partners, self.best)

    def _named(self) -> str:
        """The beginning of a sentence about it."""
        return f"{'this' if self.run is None else self.run} is a {self.config.task} model"

    def _asked(self, texts: Iterable[str | Sequence[str]]) -> list[Any]:
        """What a task is asked, checked; where it tags words, lists of them are texts, too."""
        return checked(texts, "texts", lists=self.task.listed)


def load(
    run: str | Path,
    *,
    settings: dict[str, Any] | None = None,
    ensemble: Sequence[str | Path] = (),
    trust_code: bool = False,
    device: str = "cpu",
    threads: int | None = None,
    batch: int | None = None,
) -> Predictor:
    """A trained model from its run folder; ``settings`` are as ``{"decoding.max_length": 50}``.

    ``device`` is where it computes, ``cpu`` or ``cuda``; ``threads`` are torch's, of the whole process, and
    stay as they are where it is None; ``batch`` is how many texts go through it at once, at most.

    ``ensemble`` names other runs of the same task and vocabulary: all of them decide together what is
    written, by the mean of their probabilities. ``trust_code`` lets the runs import the code that they
    name, also where you have not trained with it, and remembers it; without it, that is an error.

    >>> elman.load("runs/names").predict(["Nguyen", "Kowalski"])  # doctest: +SKIP
    ['Vietnamese', 'Polish']
    """
    if isinstance(ensemble, (str, Path)):
        raise ArgumentError(f"ensemble is one run; give a list of them: [{str(ensemble)!r}]")
    for name, value in (("threads", threads), ("batch", batch)):
        if value is not None and (not isinstance(value, int) or value < 1):
            raise ArgumentError(f"{name} is {value!r}; it must be a whole number, at least 1")
    run, place = Path(run), find_device(device)
    if threads is not None:
        torch.set_num_threads(threads)
    trust = Trust(run, everything=trust_code)
    config = read_config(run, trust)
    checkpoint = best_checkpoint(run)  # first: it vouches for the vocabulary
    if settings:
        config = changed(config, settings)
        check_read(config, settings)
    check_code(config, trust)
    task = make_task(config)
    load_learned(task, run)
    partners: Partners = ()
    if ensemble:
        if task.generation is None:
            raise ArgumentError(
                f"{run} is a {config.task} model, which writes nothing; an ensemble is of models that do"
            )
        others = [load(one, trust_code=trust_code, device=device) for one in ensemble]
        partners = [(one.generation().writer, one.model) for one in others]
        task.generation.check_partners(partners)
    position = checkpoint.state["position"]
    best, found = position.get("best"), position.get("calibration")
    size_batches(task, batch, GPU_TIMES if place.type == "cuda" else 1)
    task = task if found is None else calibrated(task, Calibration.of(found))
    return Predictor(run, task, load_weights(checkpoint, task).to(place), partners, best)


def size_batches(task: AnyTask, batch: int | None, times: int) -> None:
    """Let a task use batches of so many texts at most, and of so many times the usual positions."""
    task.together, task.positions = batch, times * task.positions
    if task.generation is not None:
        task.generation.writer.together = batch or times * task.generation.writer.together


def check_threshold(predictor: Predictor, threshold: float | None) -> None:
    """How probable an answer must be, or None; an error where it has no meaning."""
    if threshold is None:
        return
    predictor.chooser()
    if isinstance(threshold, bool) or not isinstance(threshold, (int, float)) or not 0 < threshold <= 1:
        raise ArgumentError(f"threshold is {threshold!r}; it must be above 0 and at most 1")
