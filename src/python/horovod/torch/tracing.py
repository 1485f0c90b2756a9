"""Makes torch.compile leave this package alone."""
import importlib.util
import sys


def leave_us_alone():
    """If a step is compiled as a whole, hooks and communication run uncompiled between the compiled parts."""
    if "torch._dynamo" not in sys.modules or not hasattr(sys.modules["torch._dynamo"], "trace_rules"):
        return  # torch._dynamo is loaded by every torch optimizer, if this torch has it
    rules = sys.modules["torch._dynamo"].trace_rules
    if not _is_told(rules):
        rules.add("horovod")


def _is_told(rules):
    specification = importlib.util.find_spec("horovod")
    return specification is None or any(
        specification.origin.startswith(folder) for folder in getattr(rules, "SKIP_DIRS", ()) if folder)
