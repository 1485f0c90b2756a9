"""The manual page and the completion of horovodrun, with the programs that read them.

    HOROVODRUN=build/release/bin/horovodrun python3 tests/multiprocess/launcher_manual.py"""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

HOROVODRUN = pathlib.Path(os.environ["HOROVODRUN"]).resolve()
SHARE = HOROVODRUN.parent.parent / "share"
# Asks bash which words it would offer at the end of a line when the user presses Tab.
IN_BASH = """
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_horovodrun 2>/dev/null
printf '%s\\n' "${COMPREPLY[@]}"
"""
# Starts zsh in a terminal of its own, types a line into it and presses Tab.
IN_ZSH = """
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "PS1='> ' PROMPT_EOL_MARK=; fpath=($1 \\$fpath); autoload -U compinit; compinit -u -d $2/dump"
zpty -w shell "LISTMAX=10000; zstyle ':completion:*' list-prompt ''; unsetopt list_ambiguous; setopt no_beep"
zpty -w shell "echo is''ready"
zpty -r -m shell got '*isready*'
zpty -n -w shell "$3"$'\\t'
zpty -r -m shell got "*$4*" && print completed
"""


def output_of(*words, **options):
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False, timeout=60, **options)
    return done.returncode, done.stdout


def flags_in(text):
    return set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", text))


def known_flags():
    """Returns all spellings of flags in the help text."""
    help_text = output_of(HOROVODRUN, "--help")[1]
    titles = re.findall(r"^  (-.*)$", help_text, re.M)
    return set().union(*map(flags_in, titles))


class Manual(unittest.TestCase):
    def test_files_in_the_build_are_what_the_program_writes(self):
        for file, flags in (("horovodrun.1", ["--manual"]), ("horovodrun", ["--completion", "bash"]),
                            ("_horovodrun", ["--completion", "zsh"])):
            self.assertEqual(output_of(HOROVODRUN, *flags), (0, (SHARE / file).read_text(encoding="utf-8")), file)

    def test_page_has_every_flag_and_every_variable_of_the_help(self):
        page = output_of(HOROVODRUN, "--manual")[1].replace("\\-", "-")
        titles = "\n".join(re.findall(r"^\.T[PQ]\n(.*)$", page, re.M))
        bold = set(re.findall(r"\\fB(.*?)\\fR", titles))
        self.assertLessEqual(known_flags(), bold)
        variables = re.findall(r"^  (HOROVOD_\w+)=", output_of(HOROVODRUN, "--help")[1], re.M)
        self.assertGreater(len(variables), 20)
        self.assertLessEqual(set(variables), bold)

    def test_readers_of_manual_pages_find_nothing_wrong(self):
        checks = [words for words in (["mandoc", "-Tlint"], ["man", "-l", "--warnings=w"]) if shutil.which(words[0])]
        if not checks:
            self.skipTest("neither man nor mandoc is there")
        for words in checks:
            done = subprocess.run([*words, SHARE / "horovodrun.1"], capture_output=True, text=True, check=False,
                                  env={**os.environ, "LC_ALL": "C.UTF-8", "MANPAGER": "cat"})
            complaints = done.stderr + (done.stdout if words[0] == "mandoc" else "")
            # Man pages of other commands are not installed here, so complaints about links to them are ignored.
            of_others = "referenced manual not found"
            complaints = "".join(line for line in complaints.splitlines(True) if of_others not in line)
            self.assertEqual(complaints, "", words)


class Bash(unittest.TestCase):
    def offers(self, *words, **options):
        code, output = output_of("bash", "--norc", "-c", IN_BASH, "bash", SHARE / "horovodrun", "horovodrun", *words,
                                 **options)
        self.assertEqual(code, 0, output)
        return set(output.split())

    def test_every_flag_is_offered(self):
        self.assertEqual(self.offers("-"), known_flags())

    def test_beginning_of_a_flag_is_completed(self):
        self.assertEqual(self.offers("-np", "2", "--fusion"), {"--fusion-threshold-mb"})

    def test_values_are_those_of_the_flag(self):
        self.assertEqual(self.offers("--log-level", "WA"), {"WARNING"})
        self.assertEqual(self.offers("--log-level", "=", "E"), {"ERROR"})
        self.assertEqual(self.offers("--log-level", "="), {"TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL"})
        self.assertEqual(self.offers("--jobscript", ""), {"slurm", "lsf", "pbs"})
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "hosts.txt").touch()
            self.assertEqual(self.offers("--hostfile", "ho", cwd=folder), {"hosts.txt"})

    def test_command_is_completed_as_a_command(self):
        self.assertIn("mkdir", self.offers("-np", "2", "mkdi"))
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "train.py").touch()
            self.assertEqual(self.offers("-np", "2", "python3", "tr", cwd=folder), {"train.py"})
        self.assertNotIn("--hosts", self.offers("-np", "2", "python3", "--ho"))

    def test_shellcheck_finds_nothing_wrong(self):
        if not shutil.which("shellcheck"):
            self.skipTest("shellcheck is not there")
        self.assertEqual(output_of("shellcheck", "-s", "bash", SHARE / "horovodrun"), (0, ""))


class Zsh(unittest.TestCase):
    def setUp(self):
        if not shutil.which("zsh"):
            self.skipTest("zsh is not there")

    def completes(self, line, rest):
        with tempfile.TemporaryDirectory() as folder:
            output = output_of("zsh", "-f", "-c", IN_ZSH, "zsh", SHARE, folder, line, rest)[1]
        self.assertIn("completed", output)

    def test_every_flag_has_its_line(self):
        text = (SHARE / "_horovodrun").read_text(encoding="utf-8")
        found = set(re.findall(r"^  '(?:\([^)]*\)|\*)(-[\w-]+)", text, re.M))
        self.assertEqual(found - {"-"}, known_flags())

    def test_shell_completes_flags_and_values(self):
        self.completes("horovodrun --fusion", "threshold-mb")
        self.completes("horovodrun --log-level WA", "RNING")


if __name__ == "__main__":
    unittest.main()
