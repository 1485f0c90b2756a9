"""Reads a definition file of Singularity or Apptainer: its stages, and the errors in its grammar."""
import re

HEADER_KEYS = set("""bootstrap from includecmd mirrorurl updateurl osversion include library registry namespace stage
    product user regcode productpgp registerurl modules fingerprints confurl setopt target frontend filename
    buildargs""".split())
AGENTS = set("""docker oras localimage scratch library shub yum dnf debootstrap oci oci-archive docker-archive
    docker-daemon dockerfile arch busybox zypper""".split())
SECTIONS = set("help setup files labels environment pre post runscript test startscript arguments".split())


class Stage:
    """A part that begins with Bootstrap. Has header keys in lower case and sections (name, arguments, lines)."""

    def __init__(self):
        self.header = {}
        self.sections = []

    def lines(self, name):
        return [line for section, _, lines in self.sections if section == name for line in lines]

    def script(self, name):
        return "".join(line + "\n" for line in self.lines(name))

    def files(self):
        """Yields what %files copies: the stage of origin or "", the source, the destination."""
        for name, words, lines in self.sections:
            if name == "files":
                for line in lines:
                    source, _, destination = line.strip().partition(" ")
                    if source:
                        yield words.removeprefix("from ").strip(), source, destination.strip() or source


def parse(text):
    """Returns the stages of a definition, and a list of its errors."""
    stages, faults = [], []
    lines_of_section = None
    for number, line in enumerate(text.splitlines(), 1):
        def fault(words, number=number):
            faults.append(f"line {number}: {words}")
        bare = line.strip()
        if re.match(r"bootstrap\s*:", bare, re.I):
            stages.append(Stage())
            lines_of_section = None
        section = re.match(r"%(\w+)\s*(.*)$", line)
        if section:
            if not stages:
                fault("a section before any Bootstrap")
                stages.append(Stage())
            name, words = section.groups()
            if name not in SECTIONS and not re.match(r"app(install|labels|files|env|test|help|run|start)$", name):
                fault(f"invalid section %{name}")
            if name != "files" and any(name == other for other, *_ in stages[-1].sections):
                fault(f"%{name} a second time")
            lines_of_section = []
            stages[-1].sections.append((name, words, lines_of_section))
        elif lines_of_section is not None:
            lines_of_section.append(line)
        elif bare and not bare.startswith("#"):
            key, colon, value = bare.partition(":")
            key = key.strip().lower()
            if not colon or key not in HEADER_KEYS and not re.fullmatch(r"otherurl\d+", key):
                fault(f"invalid header {bare!r}")
                continue
            if not stages:
                fault(f"the first keyword must be Bootstrap, found {bare!r}")
                stages.append(Stage())
            if key in stages[-1].header:
                fault(f"{key} a second time")
            stages[-1].header[key] = value.strip()
    names = []
    for stage in stages:
        if stage.header.get("bootstrap") not in AGENTS:
            faults.append(f"unknown agent {stage.header.get('bootstrap')!r}")
        if "from" not in stage.header:
            faults.append("a stage has no From")
        for origin, _, destination in stage.files():
            if origin and origin not in names:
                faults.append(f"%files from {origin}: there is no such stage before it")
            if not destination.startswith("/"):
                faults.append(f"%files: {destination} is no absolute path")
        names.append(stage.header.get("stage", ""))
    if not stages:
        faults.append("there is no Bootstrap")
    return stages, faults
