"""horovod.runner.flags has spellings of horovodrun's flags a second time, for scripts that read them in Python."""
import pathlib
import re

from horovod.runner import flags

TABLE = pathlib.Path(__file__).parents[3] / "src" / "launcher" / "options" / "flag_table.cpp"


def test_all_spellings_in_python_are_those_of_a_flag_of_horovodrun():
    known = " ".join(re.findall(r'\.(?:spellings|negations) = "([^"]*)"', TABLE.read_text())).split()
    ours = [spelling for action in flags.parser()._actions for spelling in action.option_strings]
    assert len(ours) > 50
    assert sorted(set(ours) - set(known)) == []
