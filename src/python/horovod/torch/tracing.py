"""How torch.compile treats this package."""
import importlib.util
import sys


def leave_us_alone():
    """If a step is compiled as a whole, torch does not compile the hooks and the communication. They run between
    compiled parts."""
    if "torch._dynamo" not in sys.modules or not hasattr(sys.modules["torch._dynamo"], "trace_rules"):
        return  # every torch optimizer imports torch._dynamo if torch has it
    rules = sys.modules["torch._dynamo"].trace_rules
    if not _is_told(rules):
        rules.add("horovod")


def _is_told(rules):
    specification = importlib.util.find_spec("horovod")
    return specification is None or any(
        specification.origin.startswith(folder) for folder in getattr(rules, "SKIP_DIRS", ()) if folder)
