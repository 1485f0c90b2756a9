#!/usr/bin/env python3
"""Removes each wait between streams, and each look of the host at an event, one at a time from a copy of the sources,
and expects that a test fails each time.

usage: tests/on_device/remove_waits.py [--list] [SITE ...]      SITE: FILE:LINE, as --list prints it

Needs what `tests/run --preset release --label unit` sets up. Takes about a minute for each place."""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ["src/runtime", "src/collectives"]
# (void): such a call only says who is to be woken. So does one that names whom to wake: without it the engine would not
# sleep, and the task looks by itself.
CALL = re.compile(r"(?<!\(void\))\b(?:device_|device\((?:[^()]|\([^()]*\))*\))(?:\.|->)(wait|query)\(")
# Functions of a task that make these calls.
CALL_OF_STAGE = re.compile(r"\b(stage_wait(?=\(slots_)|is_there(?=\((?:way\.|ready_)))\(")
WITHOUT = {
    "wait": "[](auto&&...) { return Status{}; }{arguments}",
    "query": "[](auto&&...) { return Result<bool>(true); }{arguments}",
    "stage_wait": "[](auto...) {}{arguments}",
    "is_there": "true",
}
TESTS = ["test_runtime", "test_collectives", "test_conformance", "test_on_device"]
FILTERS = {
    "test_collectives": "HierarchyOnDevices.launches*:HierarchyOnDevices.ends*:HierarchyOnDevices.fails*"
    ":MeasuredChunks*",
    "test_runtime": "*DeviceBatch*:RandomDevicePrograms*:DeathOnDevices*:DeviceOfARank*",
    "test_conformance": "*Device*",
    "test_on_device": "-OnDeviceInProcesses*",
}


class Place:
    """One call in the sources."""

    def __init__(self, path: pathlib.Path, text: str, match: re.Match[str]) -> None:
        self.path = path
        self.begin = match.start()
        self.arguments = match.end() - 1  # where their parenthesis opens
        self.end = match.end()
        depth = 1
        while depth > 0:
            depth += {"(": 1, ")": -1}.get(text[self.end], 0)
            self.end += 1
        self.kind = match.group(1)
        self.line = text.count("\n", 0, self.begin) + 1
        self.call = " ".join(text[self.begin : self.end].split())

    @property
    def name(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}"


def places() -> list[Place]:
    found = []
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.cpp")):
            text = path.read_text()
            for call in (CALL, CALL_OF_STAGE):
                found += [Place(path, text, match) for match in call.finditer(text)]
    return [place for place in found if "wake()" not in place.call]


def build(tree: pathlib.Path) -> bool:
    run = subprocess.run(["ninja", "-C", str(tree / "build/release"), *TESTS], capture_output=True, text=True)
    if run.returncode != 0:
        print("\n".join((run.stdout + run.stderr).splitlines()[-30:]), file=sys.stderr)
    return run.returncode == 0


def first_failure(tree: pathlib.Path, folder: str = "") -> str | None:
    """Runs the tests, those of the folder first; returns the name of the first one that fails, None if all pass."""
    for test in sorted(TESTS, key=lambda test: test.removeprefix("test_") != folder):
        command = [str(tree / "build/release/tests" / test), f"--gtest_filter={FILTERS[test]}", "--gtest_fail_fast"]
        try:
            run = subprocess.run(command, capture_output=True, text=True, timeout=600)
        except subprocess.TimeoutExpired:
            return f"{test} (does not end)"
        if run.returncode != 0:
            failed = re.search(r"^\[  FAILED  \] (\S+\.[^\s,]+)", run.stdout, re.MULTILINE)
            return failed.group(1) if failed else f"{test} (ends with {run.returncode})"
    return None


def remove_each(chosen: list[Place], tree: pathlib.Path) -> int:
    survivors = 0
    for place in chosen:
        text = place.path.read_text()
        target = tree / place.path.relative_to(ROOT)
        # A lambda cannot take a list in braces, which is a stream.
        arguments = re.sub(r"(?<=[(,])\s*\{", "Stream{", text[place.arguments : place.end])
        without = WITHOUT[place.kind].replace("{arguments}", arguments)
        target.write_text(text[: place.begin] + without + text[place.end :])
        if not build(tree):
            sys.exit(f"{place.name}: does not compile without {place.call}")
        failure = first_failure(tree, place.path.relative_to(ROOT / "src").parts[0])
        target.write_text(text)
        survivors += failure is None
        print(f"{place.name:45} {place.call:60} {failure or 'NO TEST FAILS'}", flush=True)
    return survivors


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the places and end")
    parser.add_argument("sites", nargs="*")
    arguments = parser.parse_args()
    all_places = places()
    unknown = set(arguments.sites) - {place.name for place in all_places}
    if unknown:
        parser.error(f"no wait is at {', '.join(sorted(unknown))}; --list prints where they are")
    chosen = [place for place in all_places if not arguments.sites or place.name in arguments.sites]
    if arguments.list:
        print("\n".join(f"{place.name:45} {place.call}" for place in chosen))
        return 0
    with tempfile.TemporaryDirectory(prefix="without-waits-") as folder:
        tree = pathlib.Path(folder) / "tree"
        shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns("build", ".git", ".venv*"))
        configure = ["cmake", "--preset", "release", "-DHVD_BUILD_PYTHON=OFF"]
        subprocess.run(configure, cwd=tree, stdout=subprocess.DEVNULL, check=True)
        if not build(tree):
            sys.exit("the sources as they are do not compile")
        if failure := first_failure(tree):
            sys.exit(f"{failure} fails with all waits in place")
        survivors = remove_each(chosen, tree)
    print(f"{len(chosen)} removed, {survivors} of them without a failing test")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
