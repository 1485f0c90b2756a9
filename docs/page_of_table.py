"""Writes a page from a table that is compiled in: docs_tables (docs/tables.cpp) prints the table."""
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def program():
    """Returns the path of docs_tables: that of DOCS_TABLES, else the newest one of a build here."""
    if named := os.environ.get("DOCS_TABLES"):
        return named
    built = sorted(ROOT.glob("build/*/tests/docs_tables"), key=lambda path: path.stat().st_mtime)
    if not built:
        raise SystemExit("no build here has docs_tables: ninja -C build/release docs_tables")
    return str(built[-1])


def lines_of(table):
    """Gives the fields of each line of the table: "section", its title, …, or "row" and the fields of a row."""
    answer = subprocess.run([program(), table], check=True, capture_output=True, text=True)
    return [line.split("\t") for line in answer.stdout.splitlines()]


def write_or_check(page, text, source):
    """Writes the page; with --check only tells whether it is up to date."""
    if sys.argv[1:] != ["--check"]:
        page.write_text(text, encoding="utf-8")
    elif page.read_text(encoding="utf-8") != text:
        sys.exit(f"docs/{page.name} differs from the table in {source}: build docs_tables and run docs/{page.stem}")
