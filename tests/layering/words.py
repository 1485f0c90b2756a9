#!/usr/bin/env python3
"""Words that a reader would not search for, or would have to read twice: fails where src, the docs, the
README or a help text has one of the phrases below. docs/words.md has the table "Words that we do not use".

usage: words.py ROOT
"""
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from names import files_below  # noqa: E402

INSTEAD = {
    r"inside of": "in, inside",
    r"for ever": "forever",
    r"(?:say|says|said|saying) so": "report, tell, announce",
    r"(?:hear|hears|heard|hearing) of": "get, notice, learn of",
    r"heed(?:s|ed|ing)?": "acknowledge, follow",
    r"whoever": "the rank that, the user who",
    r"goodbye|farewell": "leaves, has left",
    r"(?:master|chief|coordinator) rank": "rank 0, leader, root",
    r"who (?:administers|uses it)": "the administrator, the user",
    r"but for": "except",
    r"for want of": "because it lacks, because there are too few",
    r"upon": "on, when",
    r"refused? by name": "an error that names it",
    r"hands (?:it |them )?on|hand (?:it|them) on": "pass on",
    r"look(?:s|ed)? whether": "check whether",
}
FORBIDDEN = re.compile("|".join(rf"(\b(?:{phrase})\b)" for phrase in INSTEAD), re.IGNORECASE)
ROOMS = ("src", "schedulers", "jobscripts", "modules", "containers", "examples", "docs")
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "benchmarks/README.md", "tests/HUNTS.md")
GLOSSARY = "docs/words.md"  # names the words in order to forbid them


def texts(root):
    for page in PAGES:
        if (root / page).is_file():
            yield root / page
    for room in ROOMS:
        for path in files_below(root / room) if (root / room).is_dir() else ():
            if path.is_file() and not path.is_symlink() and path != root / GLOSSARY:
                yield path


def faults_of(root):
    root = pathlib.Path(root)
    faults = []
    for path in texts(root):
        try:
            lines = path.read_text().splitlines()
        except UnicodeDecodeError:  # a picture
            continue
        for number, line in enumerate(lines, 1):
            for match in FORBIDDEN.finditer(line):
                instead = list(INSTEAD.values())[match.lastindex - 1]
                faults.append(f"{path.relative_to(root)}:{number}: '{match.group()}': write {instead}")
    return faults


if __name__ == "__main__":
    if len(sys.argv) != 2 or not (pathlib.Path(sys.argv[1]) / "src").is_dir():
        sys.exit(__doc__)
    found = faults_of(sys.argv[1])
    print("\n".join(found) if found else "no word that we do not use")
    sys.exit(1 if found else 0)
