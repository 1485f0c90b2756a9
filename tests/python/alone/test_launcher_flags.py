"""horovod.runner has rows of tables of C++ a second time: spellings of horovodrun's flags, for scripts that read them
in Python, and the launchers' variables."""
import pathlib
import re

from horovod.runner import flags, run_task

SOURCES = pathlib.Path(__file__).parents[3] / "src"
TABLE = SOURCES / "launcher" / "options" / "flag_table.cpp"
LAUNCHERS = SOURCES / "bootstrap" / "launch" / "launchers.cpp"


def test_all_spellings_in_python_are_those_of_a_flag_of_horovodrun():
    known = " ".join(re.findall(r'\.(?:spellings|negations) = "([^"]*)"', TABLE.read_text())).split()
    ours = [spelling for action in flags.parser()._actions for spelling in action.option_strings]
    assert len(ours) > 50
    assert sorted(set(ours) - set(known)) == []


def test_a_rank_of_horovod_run_reads_the_number_that_any_launcher_gives_it():
    rows = re.findall(r"\.ranks = \{([^}]*)\}", LAUNCHERS.read_text())
    known = {name for row in rows for name in re.findall(r'"(\w+)"', row)}
    assert len(rows) > 10
    assert set(run_task._RANKS) == known - {"RANK"}  # horovodrun does not start ranks by torchrun
