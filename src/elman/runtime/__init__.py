"""Exported models without torch: ``elman.runtime.load(folder).predict(texts)``."""

from elman.runtime.base import Exported, Prediction
from elman.runtime.loading import load

__all__ = ["Exported", "Prediction", "load"]
