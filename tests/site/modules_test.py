"""Tests the modulefiles of an installed prefix with real Lmod and real Environment Modules.

    HVD_BUILD=build/release python3 tests/site/modules_test.py"""
import os
import pathlib
import shutil
import sys
import unittest

import installed

CONSUMER = installed.ROOT / "tests" / "package" / "consumer"
VERSION = installed.version()
# `snapshot FILE` writes all variables of the shell to FILE, sorted, those of the modules tool included.
SNAPSHOT = 'snapshot() { env -0 | sort -z | grep -zv -e ^_= >"$1"; }\n'


def setUpModule():
    global prefix
    installed.skip_without(installed.TOOLS / "complete", "Lmod and Environment Modules")
    prefix = installed.Prefix()


def tearDownModule():
    prefix.remove()


class WithATool:
    """The tests for any modules tool. A class for each tool adds `init` and what differs between the tools."""

    def module(self, script, **variables):
        variables.setdefault("MODULEPATH", prefix.modulefiles)
        done = installed.shell(self.init, "set -e\n" + script, **variables)
        return done.returncode, done.stdout

    def succeeds(self, script, **variables):
        code, output = self.module(script, **variables)
        self.assertEqual(code, 0, output)
        return output

    def test_unload_leaves_every_variable_as_it_was(self):
        for before in ({}, {"PYTHONPATH": "/mine", "MANPATH": "/mine/man:", "CMAKE_PREFIX_PATH": "/mine",
                            "PKG_CONFIG_PATH": "/mine", "XDG_DATA_DIRS": "/mine:/usr/share",
                            "FPATH": "/mine"}):
            with self.subTest(before):
                self.succeeds(SNAPSHOT + f"""
                    module load horovod && module unload horovod  # the tool itself remembers that it was used
                    snapshot '{prefix.folder}/before'
                    module load horovod
                    test "$HOROVOD_ROOT" = '{prefix.path}'
                    module unload horovod
                    snapshot '{prefix.folder}/after'
                    cmp '{prefix.folder}/before' '{prefix.folder}/after'""", **before)

    def test_load_prints_nothing(self):
        self.assertEqual(self.succeeds("module load horovod; module unload horovod"), "")

    def test_python_of_any_kind_imports_the_package(self):
        output = self.succeeds("""module load horovod
            python3 -c 'import horovod, horovod._core; print(horovod.__version__, horovod.__file__)'""")
        self.assertEqual(output.strip(), f"{VERSION} {prefix.path}/lib/horovod/python/horovod/__init__.py")

    def test_launcher_runs_and_finds_its_plugins(self):
        output = self.succeeds("module load horovod; horovodrun --version; horovodrun --check-build; "
                               "python3 -m horovod.runner.launch --version")
        self.assertIn("[X] PMIx", output)

    def test_manual_and_completion_are_found(self):
        output = self.succeeds("module load horovod; man -w horovodrun; echo $XDG_DATA_DIRS")
        self.assertEqual(output.splitlines()[0], f"{prefix.path}/share/man/man1/horovodrun.1")
        self.assertEqual(output.splitlines()[1], f"{prefix.path}/share:/usr/local/share:/usr/share")
        output = self.succeeds("module load horovod; man -w horovodrun; echo $XDG_DATA_DIRS $FPATH",
                               MANPATH="/mine/man:", XDG_DATA_DIRS="/mine", FPATH="/mine")
        self.assertIn(f"{prefix.path}/share/man/man1/horovodrun.1", output)
        self.assertIn(f"{prefix.path}/share:/mine {prefix.path}/share/zsh/site-functions:/mine", output)

    def test_c_example_compiles_by_pkg_config_and_two_ranks_reduce(self):
        program = prefix.folder / "by_pkg_config"
        output = self.succeeds(f"""
            module load horovod
            eval "cc -o {program} '{CONSUMER}/average.c' $(pkg-config --cflags --libs horovod)"
            horovodrun -np 2 {program}""")
        self.assertEqual(output.count("works"), 2, output)

    def test_example_compiles_by_cmake_and_two_ranks_reduce(self):
        build = prefix.folder / "by_cmake"
        shutil.rmtree(build, ignore_errors=True)
        output = self.succeeds(f"""
            module load horovod
            cmake -S '{CONSUMER}' -B {build} >{build}.log || {{ cat {build}.log; false; }}
            cmake --build {build} >{build}.log || {{ cat {build}.log; false; }}
            horovodrun -np 2 {build}/in_cpp""")
        self.assertEqual(output.count("in C++ it works"), 2, output)

    def test_horovod_of_an_environment_comes_before_the_modules(self):
        mine = prefix.folder / "mine"
        self.succeeds(f"test -e {mine} || python3 -m venv --without-pip {mine}")
        own = next(mine.glob("lib/python3*/site-packages")) / "horovod"
        (own / "torch").mkdir(parents=True, exist_ok=True)
        (own / "__init__.py").write_text("__version__ = 'mine'\n", encoding="utf-8")
        (own / "torch" / "__init__.py").write_text("whose = 'mine, too'\n", encoding="utf-8")
        launcher = mine / "bin" / "horovodrun"
        launcher.write_text("#!/bin/sh\necho my launcher\n", encoding="utf-8")
        launcher.chmod(0o755)
        look = "python -c 'import horovod.torch, horovod; print(horovod.__version__, horovod.torch.whose)'; horovodrun"
        activate, load = f"source {mine}/bin/activate", "module load horovod"
        for order in (f"{load}; {activate}", f"{activate}; {load}"):
            with self.subTest(order):
                self.assertEqual(self.succeeds(f"{order}; {look}"), "mine mine, too\nmy launcher\n")
        shutil.rmtree(own)
        launcher.unlink()
        output = self.succeeds(f"source {mine}/bin/activate; module load horovod; "
                               "python -c 'import horovod; print(horovod.__version__)'")
        self.assertEqual(output.strip(), VERSION)

    def test_is_listed_once_though_there_is_a_file_for_each_tool(self):
        listed = self.succeeds("module -t avail 2>&1")
        self.assertEqual(listed.count("horovod/" + VERSION), 1, listed)

    def test_script_of_the_page_of_docs_works(self):
        done = installed.shell(self.init, f"set -e\ncd '{installed.ROOT}'\n" + installed.script_of("modules.md"),
                               PREFIX=prefix.folder / "of-the-docs")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(done.stdout.count(f"{VERSION} works"), 2, done.stdout)

    def test_switch_to_another_version_and_back_leaves_nothing(self):
        """The other version is a copy of the files that a modulefile looks for."""
        tree = prefix.folder / "switched"
        shutil.rmtree(tree, ignore_errors=True)
        for version in ("0.1.0", "0.2.0"):
            place = tree / version
            (place / "bin").mkdir(parents=True)
            shutil.copy(prefix.path / "bin" / "horovodrun", place / "bin")
            shutil.copytree(prefix.path / "share" / "bash-completion", place / "share" / "bash-completion")
            files = place / "share" / "modulefiles" / "horovod"
            files.mkdir(parents=True)
            for file in (prefix.modulefiles / "horovod").iterdir():
                if file.name in (VERSION, f"{VERSION}.lua"):
                    (files / file.name.replace(VERSION, version)).write_text(file.read_text().replace(VERSION, version))
        for before in ({}, {"XDG_DATA_DIRS": "/mine"}):
            self.succeeds(SNAPSHOT + f"""
                module load horovod/0.1.0; module unload horovod/0.1.0
                snapshot '{tree}/before'
                module load horovod/0.1.0
                module switch horovod/0.1.0 horovod/0.2.0
                test "${{XDG_DATA_DIRS%%:*}}" = '{tree}/0.2.0/share'
                module unload horovod/0.2.0
                snapshot '{tree}/after'
                cmp '{tree}/before' '{tree}/after'""", **before,
                          MODULEPATH=":".join(f"{tree}/{v}/share/modulefiles" for v in ("0.1.0", "0.2.0")))

    def test_help_and_whatis_tell_what_it_is(self):
        self.assertIn("horovodrun -np 4 python train.py", self.succeeds("module help horovod 2>&1"))
        self.assertIn("distributed training", self.succeeds("module whatis horovod 2>&1"))

    def test_modulefile_in_a_tree_that_was_moved_finds_its_prefix(self):
        moved = prefix.folder / "moved"
        os.rename(prefix.path, moved)
        try:
            output = self.succeeds("""
                module load horovod
                echo $HOROVOD_ROOT
                python3 -c 'import horovod; print(horovod.__file__)'
                horovodrun --check-build""", MODULEPATH=moved / "share" / "modulefiles")
        finally:
            os.rename(moved, prefix.path)
        self.assertTrue(output.startswith(f"{moved}\n{moved}/lib/horovod/python/horovod/__init__.py\n"), output)
        self.assertIn("[X] hwloc", output)

    def test_copy_in_a_tree_of_the_site_names_the_prefix(self):
        tree = prefix.folder / "copied"
        shutil.rmtree(tree, ignore_errors=True)
        shutil.copytree(prefix.modulefiles, tree / "share" / "modulefiles")
        tree = tree / "share" / "modulefiles"
        output = self.succeeds("module load horovod; echo $HOROVOD_ROOT", MODULEPATH=tree)
        self.assertEqual(output.strip(), str(prefix.path))
        away = prefix.folder / "away"
        os.rename(prefix.path, away)
        try:
            code, output = self.module("module load horovod 2>&1; echo loaded $HOROVOD_ROOT", MODULEPATH=tree)
        finally:
            os.rename(away, prefix.path)
        self.assertIn("is not where this modulefile says", " ".join(output.split()))
        self.assertNotIn(f"loaded {prefix.path}", output, code)

    def tree_of_two_versions(self, default):
        tree = prefix.folder / f"tree-{default}"
        shutil.rmtree(tree, ignore_errors=True)
        shutil.copytree(prefix.modulefiles, tree)
        for name in (VERSION, f"{VERSION}.lua"):
            text = (tree / "horovod" / name).read_text(encoding="utf-8").replace(VERSION, "99.0.0")
            (tree / "horovod" / name.replace(VERSION, "99.0.0")).write_text(text, encoding="utf-8")
        if default is None:
            (tree / "horovod" / ".version").unlink()
        return tree

    def test_default_is_the_version_that_was_made_it_else_the_newest(self):
        for default, expected in ((VERSION, VERSION), (None, "99.0.0")):
            tree = self.tree_of_two_versions(default)
            output = self.succeeds("module load horovod; echo $LOADEDMODULES", MODULEPATH=tree)
            self.assertEqual(output.strip(), f"horovod/{expected}")

    def test_two_versions_are_never_loaded_at_once(self):
        _, output = self.module("""
            module load horovod
            module load horovod/99.0.0 >/dev/null 2>&1 || true
            echo $LOADEDMODULES""", MODULEPATH=self.tree_of_two_versions(VERSION))
        self.assertEqual(output.strip().count("horovod/"), 1, output)


class Lmod(WithATool, unittest.TestCase):
    init = installed.LMOD

    def test_modulefile_passes_the_check_of_lmod(self):
        self.succeeds("$LMOD_CMD bash --checkSyntax load horovod")
        lua = prefix.modulefiles / "horovod" / f"{VERSION}.lua"
        done = installed.run("luac5.3", "-p", lua)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_tcl_file_serves_lmod_as_well(self):
        tree = prefix.folder / "tcl-only"
        shutil.rmtree(tree, ignore_errors=True)
        (tree / "horovod").mkdir(parents=True)
        shutil.copy(prefix.modulefiles / "horovod" / VERSION, tree / "horovod")
        output = self.succeeds("""
            module load horovod
            echo $HOROVOD_ROOT
            module unload horovod
            echo ${HOROVOD_ROOT:-unset}""", MODULEPATH=tree)
        self.assertEqual(output, f"{prefix.path}\nunset\n")


class EnvironmentModules(WithATool, unittest.TestCase):
    init = installed.ENVIRONMENT_MODULES


class Training(unittest.TestCase):
    """Label site. Trains with the PyTorch of an environment that has no horovod of its own."""

    def test_pytorch_of_an_environment_trains_with_the_modules_horovod(self):
        mine = installed.environment_with_torch(prefix.folder / "with_torch")
        installed.skip_without(mine or ".venv-tests", "PyTorch")
        example = installed.ROOT / "examples" / "torch_synthetic.py"
        for init in (installed.LMOD, installed.ENVIRONMENT_MODULES):
            done = installed.shell(init, f"""
                set -e
                source {mine}/bin/activate
                module load horovod
                python -c 'import horovod; print(horovod.__file__)'
                horovodrun -np 2 python {example} --layers 2 --width 64 --steps 3""", MODULEPATH=prefix.modulefiles)
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertTrue(done.stdout.startswith(f"{prefix.path}/"), done.stdout)


class Installation(unittest.TestCase):
    def test_prefix_that_modulefiles_cannot_name_gets_none(self):
        for name in ("a:b", "a b"):
            output = installed.install(prefix.folder / name)
            self.assertIn("No modulefiles were written", output)
            self.assertTrue((prefix.folder / name / "bin" / "horovodrun").exists())
            self.assertFalse((prefix.folder / name / "share" / "modulefiles").exists())

    def test_staged_installation_names_the_prefix_without_the_stage(self):
        stage = prefix.folder / "stage"
        installed.install("/opt/horovod", DESTDIR=str(stage))
        text = (stage / "opt/horovod/share/modulefiles/horovod" / f"{VERSION}.lua").read_text(encoding="utf-8")
        self.assertIn('local prefix = "/opt/horovod"', text)
        self.assertFalse(os.path.exists("/opt/horovod/share/modulefiles"))

    def test_tree_of_the_site_gets_the_files_and_keeps_its_default(self):
        tree = prefix.folder / "tree-of-the-site"
        (tree / "horovod").mkdir(parents=True)
        older = tree / "horovod" / "0.9.0.lua"
        older.write_text("", encoding="utf-8")
        script = installed.ROOT / "modules" / "write_modulefiles.cmake"
        settings = {"CMAKE_INSTALL_PREFIX": prefix.path, "HVD_MODULEFILES": tree, "HVD_RELEASE": VERSION,
                    "CMAKE_INSTALL_BINDIR": "bin", "CMAKE_INSTALL_LIBDIR": "lib", "CMAKE_INSTALL_MANDIR": "share/man"}
        for default, chosen in (("OFF", set()), ("ON", {".version"})):
            options = [f"-D{name}={value}" for name, value in {**settings, "HVD_MODULE_DEFAULT": default}.items()]
            done = installed.run("cmake", *options, "-P", script)
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertEqual({entry.name for entry in (tree / "horovod").iterdir()},
                             {"0.9.0.lua", VERSION, f"{VERSION}.lua"} | chosen)

    def test_new_version_in_a_prefix_takes_the_old_ones_modulefile_away(self):
        old = prefix.modulefiles / "horovod" / "0.9.0.lua"
        old.write_text("", encoding="utf-8")
        installed.install(prefix.path)
        self.assertFalse(old.exists())
        self.assertEqual({entry.name for entry in (prefix.modulefiles / "horovod").iterdir()},
                         {".version", VERSION, f"{VERSION}.lua"})


if __name__ == "__main__":
    unittest.main(verbosity=2)
