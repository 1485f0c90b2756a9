"""The definitions and Dockerfiles of containers/ are what the generator writes, follow their grammars, and contain good
shell scripts."""
import pathlib
import re
import shutil
import unittest

import definition_file
import installed

CONTAINERS = installed.ROOT / "containers"
DEFINITIONS = sorted(CONTAINERS.glob("*.def"))
DOCKERFILES = sorted(CONTAINERS.glob("*.Dockerfile"))
INSTRUCTIONS = {"ARG", "CMD", "COPY", "ENV", "FROM", "LABEL", "RUN"}


def commands(script):
    return [line.strip() for line in script.splitlines() if line.strip()]


def instructions(text):
    """The instructions of a Dockerfile, each as its name and the rest, with continuation lines joined."""
    joined = re.sub(r" *\\\n *", " ", text)
    return [line.split(" ", 1) for line in joined.splitlines() if line.strip() and not line.startswith("#")]


class Files(unittest.TestCase):
    def test_files_are_what_the_generator_writes(self):
        done = installed.run(CONTAINERS / "generate", "--check")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(len(DEFINITIONS), 8)
        self.assertEqual([file.stem for file in DEFINITIONS], [file.stem for file in DOCKERFILES])

    def test_definitions_follow_the_grammar_of_apptainer(self):
        for file in DEFINITIONS:
            with self.subTest(file.name):
                stages, faults = definition_file.parse(file.read_text(encoding="utf-8"))
                self.assertEqual(faults, [])
                self.assertEqual([stage.header["stage"] for stage in stages], ["build", "final"])
                for section in ("environment", "labels", "runscript", "test", "help"):
                    self.assertTrue(stages[1].lines(section), section)

    def test_grammar_finds_what_apptainer_refuses(self):
        good = "Bootstrap: docker\nFrom: debian:12\n"
        for text, words in (("From: debian:12\nBootstrap: docker\n", "first keyword"),
                            (good + "%pots\n true\n", "invalid section %pots"),
                            (good + "%post\n true\n%post\n true\n", "a second time"),
                            (good + "%files from nowhere\n /a /b\n", "no such stage"),
                            (good + "%files\n src src\n", "no absolute path"),
                            ("Bootstrap: dokcer\nFrom: debian:12\n", "unknown agent"),
                            ("Bootstrap: docker\n", "no From"), (good + "Form: x\n", "invalid header"),
                            ("", "no Bootstrap")):
            with self.subTest(words):
                self.assertIn(words, "\n".join(definition_file.parse(text)[1]))

    def test_files_that_are_copied_exist(self):
        for file in DEFINITIONS:
            for stage in definition_file.parse(file.read_text(encoding="utf-8"))[0]:
                for origin, source, _ in stage.files():
                    self.assertTrue(origin or (installed.ROOT / source).exists(), f"{file.name}: {source}")

    @unittest.skipUnless(shutil.which("shellcheck"), "shellcheck is not installed")
    def test_scripts_pass_shellcheck(self):
        for file in DEFINITIONS:
            for stage in definition_file.parse(file.read_text(encoding="utf-8"))[0]:
                for section in ("post", "test", "runscript", "environment"):
                    done = installed.run("shellcheck", "--shell=sh", "--exclude=SC2046", "-",
                                         input="#!/bin/sh -e\n" + stage.script(section))
                    self.assertEqual(done.returncode, 0, f"{file.name} %{section}\n{done.stdout}")

    def test_dockerfile_takes_the_same_steps_as_the_definition(self):
        for definition, dockerfile in zip(DEFINITIONS, DOCKERFILES):
            with self.subTest(dockerfile.name):
                stages, _ = definition_file.parse(definition.read_text(encoding="utf-8"))
                rows = instructions(dockerfile.read_text(encoding="utf-8"))
                self.assertEqual({name for name, _ in rows} - INSTRUCTIONS, set())
                runs = [rest.split(" && ") for name, rest in rows if name == "RUN"]
                for steps, stage, section in zip(runs, (*stages, stages[1]), ("post", "post", "test")):
                    own = [line for line in commands(stage.script(section)) if not re.match(r"export |set ", line)]
                    self.assertEqual(steps, own)
                bases = [rest.split(" ")[0] for name, rest in rows if name == "FROM"]
                self.assertEqual(bases, [stage.header["from"] for stage in stages])
                copied = [rest.split(" ") for name, rest in rows if name == "COPY" and not rest.startswith("--from")]
                self.assertEqual(copied, [[source, destination] for stage in stages
                                          for origin, source, destination in stage.files() if not origin])

    def test_no_image_brings_a_secret_or_a_second_nccl(self):
        for file in (*DEFINITIONS, *DOCKERFILES):
            text = file.read_text(encoding="utf-8")
            self.assertIsNone(re.search(r"(?i)password|token|secret|--trusted-host|http://", text), file.name)
            self.assertNotIn("libnccl", text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
