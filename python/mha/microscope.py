"""`view`: every head of a model on a text, as a page to look at in a notebook or to keep as one file.

The page is that of `mha serve` with the answers it asks for in it: it needs no server and no network. Used by users; what is computed is
src/view's."""

from __future__ import annotations

import html
import json
import os
import tempfile
import urllib.parse
from collections.abc import Iterable
from typing import Literal

from mha import _core
from mha._core import Tokenizer
from mha.attention import threads_of
from mha.model import Transformer

_Path = str | os.PathLike[str]
_Head = tuple[int, int]


class View:
    """A page: shown where a notebook shows the last value of a cell, and saved by `save`."""

    def __init__(self, page: str, title: str, height: int) -> None:
        self.html = page
        """The whole page, HTML that loads nothing from elsewhere."""
        self._title = title
        self._height = height

    def _repr_html_(self) -> str:
        """In a frame of its own, so that neither the notebook's styles and scripts nor the page's reach each other."""
        return (f'<iframe srcdoc="{html.escape(self.html)}" title="{html.escape(self._title)}" sandbox="allow-scripts allow-downloads" '
                f'style="width:100%;height:{self._height}px;border:0" loading="lazy"></iframe>')

    def __repr__(self) -> str:
        return f"<mha.View of {self._title!r}: {len(self.html) / 2**20:.1f} MiB of HTML; shown in a notebook, or kept by save(path)>"

    def save(self, path: _Path) -> None:
        """Writes the page to a file, at once or not at all. OSError where that fails."""
        name = os.fspath(path)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=os.path.dirname(os.path.abspath(name)), suffix=".html", delete=False) as draft:
            try:
                draft.write(self.html)
                draft.close()
                os.replace(draft.name, name)
            except BaseException:
                os.unlink(draft.name)
                raise


def view(
    text: str,
    *,
    model: Transformer | _Path | None = None,
    tokenizer: Tokenizer | None = None,
    head: _Head = (0, 0),
    unit: Literal["word", "piece"] = "word",
    zeroed: Iterable[_Head] = (),
    height: int = 760,
    num_threads: int | None = None,
) -> View:
    """The microscope on `text`: all heads at once, any head's links and table, by word and by piece.

    model: a Hugging Face folder of the BERT family, or a Transformer, which then wants its `tokenizer`; None: the model that ./run unpacks.
    head: (layer, head) that is shown first. zeroed: heads whose output is taken away.
    height: of the frame in a notebook, in pixels. num_threads: None: all cores.

    Where the package was built without Node, the page says how to get it. Raises ValueError where the text cannot be read or a head is not
    there, OSError where the model is not."""
    if isinstance(model, Transformer):
        if tokenizer is None:
            raise ValueError("model is a Transformer: tokenizer must be given with it")
        transformer, name = model, ""
    else:
        folder = os.fspath(model) if model is not None else _default_folder()
        transformer, name = Transformer(folder), os.path.basename(os.path.abspath(folder))
        tokenizer = Tokenizer.load(os.path.join(folder, "tokenizer.json")) if tokenizer is None else tokenizer
    layer, number = head
    config = transformer.config
    if not (0 <= layer < config.layers and 0 <= number < config.heads):
        raise ValueError(f"head is {(layer, number)}, the model has {config.layers} layers of {config.heads} heads, counted from 0")
    if unit not in ("word", "piece"):
        raise ValueError(f"unit is {unit!r}, must be 'word' or 'piece'")
    taken = [[int(of_layer), int(of_head)] for of_layer, of_head in zeroed]
    state = urllib.parse.urlencode({"unit": unit, "layer": layer, "head": number})
    body = json.dumps({"text": text, **({"zeroed": taken} if taken else {})})
    page = _core.text_page(transformer._model, tokenizer, name, body, state, threads_of(num_threads))
    return View(page, text, height)


def _default_folder() -> str:
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = os.path.join(cache, "mha", "models", "all-MiniLM-L6-v2")
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"no model in {folder}: run ./run once, or give a Hugging Face folder as model")
    return folder
