"""Checks the pages for users against the tree: links, commands, variables, the page of settings.

    HOROVODRUN=build/release/horovodrun python3 tests/docs/docs_test.py

In a block ```console runs``` every command behind `$ ` is run and must succeed. A block ```console runs python```
needs an installed horovod; it is run by tests/python, with PARTS_OF_DOCS=python."""
import os
import pathlib
import re
import shlex
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = sorted({*ROOT.glob("*.md"), *(page for folder in ("docs", "src", "tests", "benchmarks", "examples")
                                      for page in (ROOT / folder).rglob("*.md"))})
FOR_USERS = [page for page in PAGES if page.parent == ROOT and page.name != "CHANGELOG.md"
             or "docs" in page.relative_to(ROOT).parts]
NEEDS_PYTHON = os.environ.get("PARTS_OF_DOCS") == "python"


def name_of(page):
    return str(page.relative_to(ROOT))


def blocks(page):
    """Yields the fenced blocks of a page, each as the words behind its opening fence and its lines."""
    for fence in re.finditer(r"^```([^\n]*)\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S):
        yield fence[1].split(), fence[2].splitlines()


def prose(page):
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)


def anchors(page):
    """The anchors that GitHub makes of the headings."""
    found = set()
    for heading in re.findall(r"^#+ (.*)$", prose(page), re.M):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower().strip()
        found.add(re.sub(r"[^\w\- ]", "", plain).replace(" ", "-"))
    return found


def commands(page):
    """Yields each command of the shell blocks, with its continuation lines."""
    for words, lines in blocks(page):
        if words[:1] not in (["sh"], ["console"]):
            continue
        text = "\n".join(lines).replace("\\\n", " ")
        for line in text.splitlines():
            if words[0] == "console":
                if not line.startswith("$ "):
                    continue
                line = line[2:]
            line = re.split(r"\s#", line)[0].strip()
            if line and not line.startswith("#"):
                yield line


def horovodrun():
    return os.environ.get("HOROVODRUN", "horovodrun")


class WhatUsersRead(unittest.TestCase):
    def test_every_link_into_the_tree_leads_somewhere(self):
        for page in PAGES:
            for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", prose(page))):
                if re.match(r"[a-z]+:", target):
                    continue
                file, _, anchor = target.partition("#")
                with self.subTest(page=name_of(page), link=target):
                    there = (page.parent / file).resolve() if file else page
                    self.assertTrue(there.exists(), f"{name_of(page)}: the link {target} leads nowhere")
                    if anchor:
                        self.assertIn(anchor, anchors(there), f"{name_of(page)}: {target} names no heading")

    def test_every_page_and_decision_is_in_the_list_of_its_folder(self):
        for folder in (ROOT / "docs", ROOT / "docs" / "decisions"):
            listed = (folder / "README.md").read_text(encoding="utf-8")
            for page in folder.glob("*.md"):
                if page.name != "README.md":
                    self.assertIn(f"({page.name})", listed, f"{name_of(folder)}/README.md does not list it")

    def test_every_decision_has_its_date(self):
        for page in (ROOT / "docs" / "decisions").glob("*.md"):
            if page.name != "README.md":
                title, _, date = page.read_text(encoding="utf-8").splitlines()[:3]
                self.assertTrue(title.startswith("# "), name_of(page))
                self.assertRegex(date, r"^20\d\d-\d\d-\d\d$", f"{name_of(page)}: the third line is the date")

    def test_the_page_of_settings_is_that_of_the_table(self):
        check = subprocess.run([ROOT / "docs" / "settings", "--check"], capture_output=True, text=True)
        self.assertEqual(check.returncode, 0, check.stderr)

    def test_the_page_of_errors_is_that_of_the_table(self):
        check = subprocess.run([ROOT / "docs" / "errors", "--check"], capture_output=True, text=True)
        self.assertEqual(check.returncode, 0, check.stderr)

    def test_every_id_of_an_error_is_used_and_explained(self):
        table = ROOT / "src" / "base" / "error_ids.cpp"
        text = table.read_text(encoding="utf-8")
        explained = re.findall(r'\{"(HVD\d{4})"', text[text.index("error_table[]"):])
        self.assertEqual(len(explained), len(set(explained)), "an id stands for one error")
        used = set()
        for file in (path for kind in ("*.cpp", "*.hpp", "*.py", "*.cmake") for path in (ROOT / "src").rglob(kind)):
            if file != table:
                used.update(re.findall(r"\bHVD\d{4}\b", file.read_text(encoding="utf-8")))
        self.assertEqual(used, set(explained))

    def test_every_variable_is_a_known_one(self):
        table = (ROOT / "src/base/settings/config.cpp").read_text(encoding="utf-8")
        known = set(re.findall(r'\{"(HOROVOD_\w+)"', table))
        for page in FOR_USERS:
            for variable in re.findall(r"\bHOROVOD_[A-Z_]*[A-Z]\b(?!_)", page.read_text(encoding="utf-8")):
                with self.subTest(page=name_of(page)):
                    self.assertIn(variable, known)

    def test_every_flag_of_horovodrun_is_a_known_one(self):
        shown = subprocess.run([horovodrun(), "--help"], capture_output=True, text=True, check=True).stdout
        known = set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", shown))
        for page in FOR_USERS:
            spans = [span for span in re.findall(r"`([^`\n]+)`", prose(page)) if span.startswith("horovodrun ")]
            for command in [*commands(page), *spans]:
                words = command.split()
                while words and "=" in words[0] or words[:1] == ["nice"]:
                    words.pop(0)
                if words[:1] != ["horovodrun"]:
                    continue
                taking = {"-np", "-H", "--hosts", "--hostfile", "--config-file", "--output-filename", "--mpi-args"}
                rest = iter(words[1:])
                for word in rest:
                    if not word.startswith("-"):
                        break  # here the command of the ranks begins
                    flag = word.partition("=")[0]
                    with self.subTest(page=name_of(page), command=command):
                        self.assertIn(flag, known)
                    if flag in taking and "=" not in word:
                        next(rest, None)

    def test_every_script_of_a_command_is_in_the_tree(self):
        tops = {path.name for path in ROOT.iterdir() if path.is_dir()} - {"build"}
        for page in FOR_USERS:
            for command in commands(page):
                for word in command.split():
                    top = word.split("/")[0]
                    if "/" in word and top in tops and re.fullmatch(r"[\w./-]+", word):
                        with self.subTest(page=name_of(page), command=command):
                            self.assertTrue((ROOT / word).exists(), f"{name_of(page)}: there is no {word}")

    def test_every_test_of_a_fault_that_was_found_exists(self):
        page = (ROOT / "tests/HUNTS.md").read_text(encoding="utf-8")
        named = re.findall(r"`tests/one ((?:[\w/]+\.(?:py|cpp)::)?[\w.]+)`", page)
        self.assertGreater(len(named), 100)
        tests = {}
        for path in [*ROOT.glob("tests/**/*.py"), *ROOT.glob("tests/**/*.cpp")]:
            for match in re.finditer(r"\bdef (test_\w+)|\bTEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)", path.read_text("utf-8")):
                tests.setdefault(match[1] or f"{match[2]}.{match[3]}", set()).add(name_of(path))
        for name in named:
            file, _, test = name.rpartition("::")
            with self.subTest(test=name):
                self.assertIn(test, tests, "tests/HUNTS.md names a test that is not there")
                self.assertTrue(file in tests[test] if file else len(tests[test]) == 1, f"it is in {tests[test]}")

    def test_every_block_of_python_can_be_read(self):
        for page in FOR_USERS:
            for words, lines in blocks(page):
                if words == ["python"]:
                    with self.subTest(page=name_of(page)):
                        compile("\n".join(lines), name_of(page), "exec")

    def test_no_line_is_longer_than_120_columns(self):
        for page in FOR_USERS:
            for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
                if not line.startswith("|"):
                    self.assertLessEqual(len(line), 120, f"{name_of(page)}:{number}")

    def test_every_command_that_is_marked_runs(self):
        found = 0
        folder = pathlib.Path(horovodrun())
        path = f"{folder.resolve().parent}:{os.environ['PATH']}" if "/" in str(folder) else os.environ["PATH"]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("HOROVOD_")}
        for page in FOR_USERS:
            for words, lines in blocks(page):
                if words[:2] != ["console", "runs"] or (words[2:] == ["python"]) != NEEDS_PYTHON:
                    continue
                found += 1
                text = "\n".join(lines).replace("\\\n", " ")
                for command in [line[2:] for line in text.splitlines() if line.startswith("$ ")]:
                    with self.subTest(page=name_of(page), command=command):
                        done = subprocess.run(["bash", "-c", command], cwd=ROOT, env={**environment, "PATH": path},
                                              capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)
                        self.assertEqual(done.returncode, 0, f"{shlex.quote(command)}\n{done.stdout}{done.stderr}")
        self.assertGreater(found, 0, "no block is marked: the fence is ```console runs")


if __name__ == "__main__":
    unittest.main()
