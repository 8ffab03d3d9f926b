"""`view`: every head of a model on a text, or of a file of captured tensors, as a page to look at in a notebook or to keep as one file.

The page is that of `mha serve` with the answers it asks for in it: it needs no server and no network. Used by users; what is computed is
src/view's."""

from __future__ import annotations

import base64
import html
import json
import os
import secrets
import stat
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
        """Writes the page to a file, at once or not at all; one that is replaced keeps its mode. OSError where that fails."""
        name = os.fspath(path)
        draft = os.path.join(os.path.dirname(os.path.abspath(name)), f".mha.{secrets.token_hex(8)}.html")
        with open(draft, "x", encoding="utf-8") as file:  # with the mode that any new file has
            try:
                file.write(self.html)
                file.close()
                if os.path.isfile(name):
                    os.chmod(draft, stat.S_IMODE(os.stat(name).st_mode))
                os.replace(draft, name)
            except BaseException:
                os.unlink(draft)
                raise


def view(
    source: str | os.PathLike[str],
    *,
    model: Transformer | _Path | None = None,
    tokenizer: Tokenizer | None = None,
    head: _Head = (0, 0),
    unit: Literal["word", "piece"] = "word",
    zeroed: Iterable[_Head] = (),
    run: str = "t0",
    height: int = 760,
    num_threads: int | None = None,
) -> View:
    """The microscope: all heads at once, any head's links and table, by word and by piece.

    source: a text, or a file of mha.capture (a path, or a string that ends with .safetensors) with heads of any model.
    model: of a text: a Hugging Face folder of the BERT family, or a Transformer, which then wants its `tokenizer`; None: the model that
    ./run unpacks.
    head: (layer, head) that is shown first. zeroed: of a text: heads whose output is taken away.
    run: of a file: "t0" is its first batch entry, and so on (`mha serve --tensors` lists them).
    height: of the frame in a notebook, in pixels. num_threads: None: all cores.

    Where the package was built without Node, the page says how to get it. Raises ValueError where the text or the file cannot be read or a
    head is not there, OSError where the file or the model is not."""
    layer, number = head
    if unit not in ("word", "piece"):
        raise ValueError(f"unit is {unit!r}, must be 'word' or 'piece'")
    taken = [[int(of_layer), int(of_head)] for of_layer, of_head in zeroed]
    state = {"unit": unit, "layer": layer, "head": number}
    threads = threads_of(num_threads)
    if not isinstance(source, str) or source.endswith(".safetensors"):
        if model is not None or tokenizer is not None or taken:
            raise ValueError("model, tokenizer and zeroed are for texts: what is in a file was computed elsewhere")
        path = os.fspath(source)
        page = _core.capture_page(path, run, urllib.parse.urlencode({**state, "tensors": run}), threads)
        _check_head(page, run, head)
        return View(page, os.path.basename(path), height)
    transformer, tokenizer, name = _model_of(model, tokenizer)
    config = transformer.config
    if not (0 <= layer < config.layers and 0 <= number < config.heads):
        raise ValueError(f"head is {(layer, number)}, the model has {config.layers} layers of {config.heads} heads, counted from 0")
    body = json.dumps({"text": source, **({"zeroed": taken} if taken else {})})
    return View(_core.text_page(transformer._model, tokenizer, name, body, urllib.parse.urlencode(state), threads), source, height)


def _check_head(page: str, run: str, head: _Head) -> None:
    """ValueError where the run that the page holds has no such head."""
    recorded = json.loads(page.split('id="mha-snapshot">', 1)[1].split("</script>", 1)[0])  # which holds no "<"
    told = base64.b64decode(recorded["responses"][f"GET /api/runs/{run}"]["body"])
    layers = json.loads(told)["layers"]
    layer, number = head
    if not 0 <= layer < len(layers):
        raise ValueError(f"head is {(layer, number)}, run {run} has {len(layers)} layers, counted from 0")
    if not 0 <= number < layers[layer]["heads"]:
        raise ValueError(f"head is {(layer, number)}, layer {layer} of run {run} has {layers[layer]['heads']} heads, counted from 0")


def _model_of(model: Transformer | _Path | None, tokenizer: Tokenizer | None) -> tuple[Transformer, Tokenizer, str]:
    """The model, its tokenizer and what it is called."""
    if isinstance(model, Transformer):
        if tokenizer is None:
            raise ValueError("model is a Transformer: tokenizer must be given with it")
        return model, tokenizer, ""
    folder = os.fspath(model) if model is not None else _default_folder()
    if tokenizer is None:
        tokenizer = Tokenizer.load(os.path.join(folder, "tokenizer.json"))
    return Transformer(folder), tokenizer, os.path.basename(os.path.abspath(folder))


def _default_folder() -> str:
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = os.path.join(cache, "mha", "models", "all-MiniLM-L6-v2")
    if not os.path.isdir(folder):
        raise FileNotFoundError(f"no model in {folder}: run ./run once, or give a Hugging Face folder as model")
    return folder
