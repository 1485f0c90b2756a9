"""The recipe for conda, read, rendered and carried out by rattler-build (a package of PyPI). Channels of conda cannot
be reached where tests run, so compilers, headers and Python are this machine's instead of the recipe's.

Label site; runs in the environment build/site-venv, which has rattler-build."""
import os
import pathlib
import re
import shutil
import sys
import tempfile
import unittest

import installed
import wheel

VENV = installed.ROOT / "build" / "site-venv"
if os.environ.get("HVD_INSIDE") != "1":
    installed.skip_without(next(VENV.glob("lib/python3*/site-packages/rattler_build"), VENV / "rattler_build"),
                           "rattler-build")
    program = str(VENV / "bin" / "python")
    os.execve(program, [program, *sys.argv], {**os.environ, "HVD_INSIDE": "1"})

import rattler_build  # noqa: E402

RECIPE = installed.ROOT / "modules" / "conda" / "recipe.yaml"
# What a conda channel tells about compilers; these are conda-forge's.
VARIANTS = {"c_compiler": ["gcc"], "cxx_compiler": ["gxx"], "c_stdlib": ["sysroot"], "c_stdlib_version": ["2.28"]}


class Progress:
    """Prints the output of the tool and of the build."""

    def __getattr__(self, event):
        return lambda *what: print(getattr(what[0], "message", "") if what else "", flush=True)


def folder_of(package):
    return wheel.lines_of("pkg-config", "--cflags-only-I", package)[0].split()[0].removeprefix("-I")


class Conda(unittest.TestCase):
    def rendered(self):
        recipe = rattler_build.Stage0Recipe.from_file(RECIPE)
        return [variant.recipe.to_dict() for variant in recipe.render(rattler_build.VariantConfig(VARIANTS))]

    def test_recipe_is_of_this_version_and_renders_to_one_package(self):
        rendered = self.rendered()
        self.assertEqual(len(rendered), 1)
        self.assertEqual(rendered[0]["package"], {"name": "horovod", "version": installed.version()})
        self.assertEqual(set(rendered[0]["requirements"]["run"]), {"cloudpickle", "python >=3.9"})

    def test_recipe_sets_only_what_cmake_reads(self):
        known = "".join(file.read_text(encoding="utf-8") for pattern in ("CMakeLists.txt", "cmake/*.cmake")
                        for file in (installed.ROOT / "src").glob(pattern))
        used = set(re.findall(r"cmake\.define\.(HVD_\w+)", RECIPE.read_text(encoding="utf-8")))
        self.assertTrue(used)
        for name in used - {"HVD_MPI_MPICH_INCLUDE", "HVD_MPI_OPENMPI_INCLUDE"}:
            self.assertIn(name, known)

    def test_tool_refuses_a_recipe_with_a_typing_error(self):
        with self.assertRaises(rattler_build.RattlerBuildError):
            rattler_build.Stage0Recipe.from_yaml(RECIPE.read_text(encoding="utf-8").replace("requirements:", "needs:"))

    def test_package_is_built_with_the_tools_of_this_machine(self):
        work = pathlib.Path(tempfile.mkdtemp(prefix="hvd-conda-"))
        self.addCleanup(shutil.rmtree, work, True)
        recipe = RECIPE.read_text(encoding="utf-8")
        replaced = {"path: ../..": f"path: {installed.ROOT}",
                    "${{ PYTHON }} -m pip install .": f"{sys.executable} -m pip install . --prefix $PREFIX",
                    "HVD_HIGHWAY_INCLUDE_DIRECTORY=$PREFIX/include": "HVD_HIGHWAY_INCLUDE_DIRECTORY=/usr/include",
                    "$BUILD_PREFIX/include": folder_of("mpich"),
                    "HVD_MPI_OPENMPI_INCLUDE=$PREFIX/include": f"HVD_MPI_OPENMPI_INCLUDE={folder_of('ompi-c')}",
                    # without optimisation it compiles faster
                    "args=-GNinja": "args=-GNinja --config-settings=cmake.build-type=Debug",
                    "  python:\n    version_independent: true\n": ""}
        for old, new in replaced.items():
            self.assertIn(old, recipe)
            recipe = recipe.replace(old, new)
        recipe = re.sub(r"^requirements:\n.*?^(?=tests:)", "", recipe, flags=re.M | re.S)
        recipe = re.sub(r"^  - python:\n.*?^(?=  - package_contents:)", "", recipe, flags=re.M | re.S)
        (work / "recipe").mkdir()
        (work / "recipe" / "recipe.yaml").write_text(recipe, encoding="utf-8")
        for folder in ("noarch", "linux-64", "linux-aarch64"):  # an empty channel takes the place of conda-forge
            (work / "channel" / folder).mkdir(parents=True)
            (work / "channel" / folder / "repodata.json").write_text('{"packages": {}, "packages.conda": {}}')
        os.environ["PATH"] = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
        results = rattler_build.Stage0Recipe.from_file(work / "recipe" / "recipe.yaml").run_build(
            channels=[(work / "channel").as_uri()], output_dir=work / "output",
            progress_callback=Progress(), env_isolation=rattler_build.EnvironmentIsolation.NONE,
            tool_config=rattler_build.ToolConfiguration(test_strategy="skip"))
        package = rattler_build.Package.from_file(results[0].packages[0])
        self.assertEqual((package.name, str(package.version)), ("horovod", installed.version()))
        files = {str(name) for name in package.files}
        self.assertIn("bin/horovodrun", files)
        for name in ("libhorovod.so.1", "libhorovod_pmix.so", "libhorovod_hwloc.so", "libhorovod_mpi-abi.so",
                     "libhorovod_mpi-mpich.so", "libhorovod_mpi-openmpi.so", "libhorovod_bridge.so"):
            self.assertTrue([file for file in files if file.endswith(f"/horovod/lib/{name}")], name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
