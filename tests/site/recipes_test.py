"""Compares the recipes for Spack and EasyBuild with the tree (class Tree), and lets EasyBuild check its own recipe
(class EasyBuild). Spack is in no package registry: the test parses Spack's recipe, and compares its words with the
words that Spack and this tree know."""
import ast
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import installed

RECIPES = installed.ROOT / "modules"
EASYBUILD = RECIPES / "easybuild" / "Horovod-1.0.0.dev0-gompi-2024a.eb"
SPACK = RECIPES / "spack" / "spack_repo" / "horovod_hpc" / "packages" / "horovod" / "package.py"
VENV = installed.ROOT / "build" / "site-venv"
# Names that our recipe uses and gets from `from spack.package import *` and CMakePackage.
SPACK_WORDS = {"CMakePackage", "Executable", "conflicts", "depends_on", "generator", "license", "on_package_attributes",
               "run_after", "variant", "version", "when"}


def known_to_cmake():
    patterns = ("CMakeLists.txt", "src/**/CMakeLists.txt", "src/**/*.cmake")
    text = "".join(file.read_text(encoding="utf-8") for pattern in patterns for file in installed.ROOT.glob(pattern))
    return set(re.findall(r"HVD_[A-Z_]+", text)) | {"HVD_MPI_MPICH_INCLUDE", "HVD_MPI_OPENMPI_INCLUDE"}


class Tree(unittest.TestCase):
    def setUp(self):
        self.tree = ast.parse(SPACK.read_text(encoding="utf-8"))
        self.recipe = next(node for node in self.tree.body if isinstance(node, ast.ClassDef))

    def calls(self):
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call):
                yield node, node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")

    def test_recipes_are_of_this_version(self):
        version = installed.version()
        versions = [ast.literal_eval(node.args[0]) for node, name in self.calls() if name == "version"]
        self.assertEqual(versions, [version])
        self.assertIn(f"version = '{version}'", EASYBUILD.read_text(encoding="utf-8"))
        self.assertTrue(EASYBUILD.name.startswith(f"Horovod-{version}-"))

    def test_recipes_set_only_what_cmake_reads(self):
        known = known_to_cmake()
        of_easybuild = set(re.findall(r"-D(HVD_[A-Z_]+)=", EASYBUILD.read_text(encoding="utf-8")))
        of_spack = set(re.findall(r"HVD_[A-Z_]+", SPACK.read_text(encoding="utf-8"))) - {"HVD_MPI_"}
        self.assertEqual(of_easybuild - known, set())
        self.assertEqual(of_spack - known, set())

    def test_recipe_for_spack_uses_only_words_of_spack(self):
        names = [node for node in ast.walk(self.tree) if isinstance(node, ast.Name)]
        used = {node.id for node in names}
        local = {node.id for node in names if isinstance(node.ctx, ast.Store)}
        arguments = {argument.arg for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef)
                     for argument in node.args.args}
        self.assertEqual(used - local - arguments - SPACK_WORDS, set())

    def test_conditions_of_the_recipe_for_spack_name_its_variants(self):
        variants = {ast.literal_eval(node.args[0]) for node, name in self.calls() if name == "variant"}
        conditions = {word for node, _ in self.calls() for keyword in node.keywords if keyword.arg == "when"
                      for word in re.findall(r"[+~](\w+)", ast.literal_eval(keyword.value))}
        asked = {word for node, name in self.calls() if name in ("satisfies", "when")
                 for word in re.findall(r"[+~](\w+)", ast.literal_eval(node.args[0]))}
        self.assertEqual((conditions | asked) - variants, set())


class EasyBuild(unittest.TestCase):
    """EasyBuild itself reads our recipe. Label site."""

    def setUp(self):
        installed.skip_without(VENV / "bin" / "eb", "EasyBuild")
        installed.skip_without(installed.TOOLS / "complete", "Lmod")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="hvd-easybuild-"))
        self.addCleanup(shutil.rmtree, self.folder, True)
        name = f"horovod-{installed.version()}"
        subprocess.run(["git", "archive", f"--prefix={name}/", "-o", self.folder / f"{name}.tar.gz", "HEAD"],
                       cwd=installed.ROOT, check=True)

    def easybuild(self, *words):
        lmod = installed.TOOLS / "lmod/usr/share/lmod/lmod/libexec"
        environment = {**os.environ, "EB_PYTHON": str(VENV / "bin" / "python"), "PATH": f"{lmod}:{os.environ['PATH']}",
                       "LMOD_CMD": str(lmod / "lmod"), "EASYBUILD_MODULES_TOOL": "Lmod",
                       "EASYBUILD_PREFIX": str(self.folder), "EASYBUILD_SOURCEPATH": str(self.folder),
                       "EASYBUILD_ALLOW_USE_AS_ROOT_AND_ACCEPT_CONSEQUENCES": "1"}
        done = installed.run(VENV / "bin" / "eb", EASYBUILD, *words, env=environment, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def test_recipe_passes_the_style_check(self):
        self.assertIn("All style checks PASSed", self.easybuild("--check-style"))

    def test_all_that_the_recipe_depends_on_is_found(self):
        planned = self.easybuild("--dry-run-short", "--robot")
        for needed in ("Highway-", "PMIx-", "hwloc-", "Python-bundle-PyPI-", "gompi-2024a"):
            self.assertIn(needed, planned)


if __name__ == "__main__":
    unittest.main(verbosity=2)
