"""What tests of the command `mha` share: running it as a user does and looking at exit codes, standard output and standard error.
Test programs are called with MHA TINY_BERT (the program; the small model of tests/data, to which a tokenizer is added here). Standard
library only.
"""

import json
import os
import pathlib
import pty
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

MHA, TINY_BERT = sys.argv[1:3]


def default_model():
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = os.environ.get("MHA_TEST_MODEL") or os.path.join(cache, "mha/models/all-MiniLM-L6-v2")
    return folder if os.path.exists(os.path.join(folder, "config.json")) else None


def tokenizer_json():
    words = "[PAD] [UNK] [CLS] [SEP] [MASK] the man saw astronom ##er tele ##scope a with . , ##s".split()
    special = {name: {"id": name, "ids": [words.index(name)], "tokens": [name]} for name in ("[CLS]", "[SEP]")}
    frame = [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "[SEP]", "type_id": 0}}]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
            "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "post_processor": {"type": "TemplateProcessing", "single": frame, "special_tokens": special},
            "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
                      "vocab": {word: i for i, word in enumerate(words)}}}


class Command(unittest.TestCase):
    """Each test has a cache folder of its own and the small model."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="mha_command_")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.cache = os.path.join(self.folder, "cache")
        self.model = os.path.join(self.folder, "tiny")
        os.mkdir(self.model)
        for name in ("config.json", "model.safetensors"):
            shutil.copy(os.path.join(TINY_BERT, name), self.model)
        self.write_model("tokenizer.json", json.dumps(tokenizer_json()).encode())

    def write_model(self, name, data):
        pathlib.Path(self.model, name).write_bytes(data)

    def environment(self, **changes):
        env = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "MHA_ISA")}
        env.update(XDG_CACHE_HOME=self.cache, TERM="xterm-256color")
        env.update({k: v for k, v in changes.items() if v is not None})
        return {k: v for k, v in env.items() if changes.get(k, "") is not None}

    def run_mha(self, *arguments, model=True, **changes):
        command = [MHA, *arguments] + (["--model", self.model] if model else [])
        return subprocess.run(command, capture_output=True, env=self.environment(**changes), timeout=120, check=False)

    def good(self, *arguments, **keywords):
        done = self.run_mha(*arguments, **keywords)
        self.assertEqual((done.returncode, done.stderr), (0, b""), arguments)
        return done.stdout.decode()

    def bad(self, *arguments, code=2, says=(), **keywords):
        """Refused with `code`, nothing on standard output, and one line on standard error that says all of `says`."""
        done = self.run_mha(*arguments, **keywords)
        error = done.stderr.decode()
        self.assertEqual((done.returncode, done.stdout), (code, b""), (arguments, error))
        self.assertRegex(error, r"\Amha: [^\n]+\n\Z")
        for part in says:
            self.assertIn(part, error)
        return error

    def on_terminal(self, *arguments, model=True, **changes):
        """Standard output and standard error when both are a terminal."""
        command = [MHA, *arguments] + (["--model", self.model] if model else [])
        master, slave = pty.openpty()
        with subprocess.Popen(command, stdout=slave, stderr=slave, env=self.environment(**changes)) as process:
            os.close(slave)
            output = b""
            while True:
                try:
                    block = os.read(master, 65536)
                except OSError:  # Linux: the other side is closed
                    break
                if not block:
                    break
                output += block
        os.close(master)
        self.assertEqual(process.returncode, 0, output)
        return output.decode()


def conllu(*sentences):
    """A treebank of sentences, each a list of words as "form UPOS head relation"."""
    text = ""
    for words in sentences:
        for i, word in enumerate(words, 1):
            form, upos, head, relation = word.split(" ")
            text += "\t".join([str(i), form, "_", upos, "_", "_", head, relation, "_", "_"]) + "\n"
        text += "\n"
    return text.encode()
