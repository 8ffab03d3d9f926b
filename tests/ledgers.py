#!/usr/bin/env python3
"""Checks the two places that name tests: tests/known_faults.txt (a test or a reason for every known fault) and docs/numerics.md (a test for
every promise). Usage: ledgers.py ROOM=EXECUTABLE... (every gtest executable of the build, with the room it is registered under).

A test that is named and not there fails, so renaming one means renaming it here too. Prints how many faults are tested and which are not.
Exit code 77 (skipped) where an executable has not been built. Standard library only.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FAULTS = ROOT.parent / "shared" / "known_faults.md"
TEST_FILE = re.compile(r"(?:tests|python/tests)/\S+")  # what is a file of tests, as docs/numerics.md quotes it
TEST_NAME = re.compile(r"\b([A-Z]\w*\.[A-Z]\w*|test_\w+)\b")


def tests_of(executable):
    """Suite.Test of everything in a gtest executable, without the instantiation's name and the parameter."""
    listing = subprocess.run([executable, "--gtest_list_tests"], check=True, capture_output=True, text=True).stdout
    names, suite = set(), ""
    for line in listing.splitlines():
        word = line.split("#")[0].rstrip()
        if re.fullmatch(r"[\w/]+\.", word):
            suite = word.split("/")[-1]
        elif word.startswith("  "):
            names.add(suite + word.strip().split("/")[0])
    return names


def registered_tests(arguments):
    """{"room/Suite.Test"} of all executables; exits where one is not built."""
    tests = set()
    for argument in arguments:
        room, executable = argument.split("=", 1)
        if not pathlib.Path(executable).exists():
            print(f"skipped: {executable} has not been built, so what {room}/ holds is unknown")
            sys.exit(77)
        tests |= {f"{room}/{name}" for name in tests_of(executable)}
    for room, files in (("python", (ROOT / "python/tests").glob("test_*.py")), ("apps", (ROOT / "tests/apps").glob("*_test.py"))):
        tests |= {f"{room}/{name}" for path in files for name in defined_in(path)}
    return tests


def faults_of_the_list():
    """Ids of ../shared/known_faults.md in order; None where it is not there."""
    if not FAULTS.exists():
        return None
    return re.findall(r"^\| (A\d+) \|", FAULTS.read_text(), re.MULTILINE)


def check_faults(tests):
    """Errors in tests/known_faults.txt."""
    errors, seen, tested, listed = [], [], [], []
    for number, line in enumerate((ROOT / "tests/known_faults.txt").read_text().splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        columns = [column.strip() for column in line.split("|")]
        if len(columns) != 3 or not re.fullmatch(r"A\d+", columns[0]):
            errors.append(f"known_faults.txt:{number}: 'id | tests or - | not yet: reason' is wanted")
            continue
        fault, names, reason = columns
        seen.append(fault)
        named = [] if names == "-" else [name.strip() for name in names.split(",")]
        errors += [f"known_faults.txt:{number}: {fault} names {name}, which is no test" for name in named if name not in tests]
        if reason and not re.fullmatch(r"not yet: .+", reason):
            errors.append(f"known_faults.txt:{number}: a reason begins with 'not yet: '")
        if not named and not reason:
            errors.append(f"known_faults.txt:{number}: {fault} has neither a test nor a reason")
        if reason:
            listed.append(f"  {fault}{' (tested in part)' if named else ''}: {reason.removeprefix('not yet: ')}")
        else:
            tested.append(fault)
    errors += [f"known_faults.txt: {fault} stands there {seen.count(fault)} times" for fault in sorted(set(seen)) if seen.count(fault) > 1]
    wanted = faults_of_the_list()
    if wanted is None:
        print("../shared/known_faults.md is not there: whether every fault stands in the ledger was not checked")
    else:
        errors += [f"known_faults.txt: {fault} of the list is missing" for fault in wanted if fault not in seen]
        errors += [f"known_faults.txt: {fault} is not in the list" for fault in seen if fault not in wanted]
    parts = sum("tested in part" in line for line in listed)
    print(f"counts: known faults: {len(tested)} tested, {len(listed)} listed ({parts} of them tested in part)")
    print("\n".join(listed))
    return errors


def defined_in(path):
    """Suite.Test, or of pytest the function's name, that a source file of tests defines."""
    text = (ROOT / path).read_text(encoding="utf-8")
    if pathlib.Path(path).suffix == ".py":
        return set(re.findall(r"^ *def (test_\w+)\(", text, re.MULTILINE))
    return {f"{suite}.{name}" for suite, name in re.findall(r"^(?:RC_GTEST_PROP|TEST(?:_[FP])?)\(\s*(\w+),\s*(\w+)[,)]", text, re.MULTILINE)}


def check_numerics(tests):
    """Errors in docs/numerics.md: every `tests/...` is a file, every Suite.Test is registered, and each row of a table that names tests has
    them in the files it names, every file with at least one."""
    errors, promises = [], 0
    bare = {name.split("/")[1] for name in tests}
    for number, line in enumerate((ROOT / "docs/numerics.md").read_text().splitlines(), 1):
        at = f"numerics.md:{number}"
        quoted = re.findall(r"`([^`]+)`", line)
        paths = [word for word in quoted if TEST_FILE.fullmatch(word)]
        names = [word for word in quoted if TEST_NAME.fullmatch(word)]
        missing = [path for path in paths if not (ROOT / path).is_file()]
        errors += [f"{at}: {path} is no file" for path in missing]
        errors += [f"{at}: {name} is no test" for name in names if name not in bare]
        if not line.startswith("|") or missing:
            continue
        promises += bool(paths or names)
        sources = {path: defined_in(path) for path in paths if path.endswith("_test.cpp") or path.startswith("python/")}
        scripts = {path: defined_in(path) for path in paths if path.startswith("tests/apps/")}  # these may be named as a whole
        errors += [f"{at}: {name} is not in {' or '.join(sources | scripts) or 'any file named there'}"
                   for name in names if not any(name in defined for defined in (sources | scripts).values())]
        errors += [f"{at}: no test of {path} is named" for path, defined in sources.items() if not defined & set(names)]
        if line.count("|") > 2 and not paths and not set(line) <= set("|- ") and not line.startswith("| promise |"):
            errors.append(f"{at}: a promise without a test")
    if promises == 0:
        errors.append("numerics.md: no promise was found")
    print(f"counts: docs/numerics.md: {promises} promises, each with its test")
    return errors


def main():
    tests = registered_tests(sys.argv[1:])
    if not tests:
        sys.exit("no gtest executable was given")
    errors = check_faults(tests) + check_numerics(tests)
    for error in errors:
        print(error, file=sys.stderr)
    sys.exit(1 if errors else 0)


main()
