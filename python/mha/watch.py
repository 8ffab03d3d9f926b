"""`watch_text`: adds a text to a `HealthWatch`, for the health of every head over many texts. What the numbers mean is in HeadHealth.

    watch = mha.HealthWatch(model.config.layers, model.config.heads)
    for text in texts:
        mha.watch_text(model, tokenizer, text, watch)
    print(watch.head(0, 3).entropy)"""

from __future__ import annotations

from mha import _core, attention
from mha._core import HealthWatch, Tokenizer, WatchedText
from mha.model import Transformer


def watch_text(model: Transformer, tokenizer: Tokenizer, text: str, watch: HealthWatch, num_threads: int | None = None) -> WatchedText:
    """Runs the model over one text and adds all its rows, those of special tokens included; memory grows with the number of tokens, not with
    its square. A text that is longer than the model reads is cut. Several threads may share a watch; what is interrupted adds nothing.

    Raises ValueError where the watch is of another model's size."""
    return _core.watch_text(model._model, tokenizer, text, watch, attention.threads_of(num_threads))
