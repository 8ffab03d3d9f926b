"""The README's Python lines work as pasted."""

import pathlib
import re
import subprocess
import sys

README = pathlib.Path(__file__).resolve().parents[2] / "README.md"


def test_the_python_lines_work_as_pasted(tmp_path):
    program = re.search(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)[1]
    assert len([line for line in program.splitlines() if line]) == 5
    promised = re.search(r"# (\(.*\))", program)[1]
    ran = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == promised
