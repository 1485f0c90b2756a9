# spack repo add modules/spack/spack_repo/horovod_hpc && spack install horovod
# Spack 1.0 or later; docs/modules.md tells where the sources come from.
from spack_repo.builtin.build_systems.cmake import CMakePackage

from spack.package import *


class Horovod(CMakePackage):
    """Horovod for HPC clusters: N copies of a training program act as one. A runtime in C++20, the launcher horovodrun,
    and bindings for PyTorch, C and C++."""

    homepage = "https://arxiv.org/abs/1802.05799"

    license("Apache-2.0")

    # The source comes from a mirror of the site with horovod-1.0.0.dev0.tar.gz, or from a clone: `spack develop
    # horovod@1.0.0.dev0`.
    manual_download = True
    version("1.0.0.dev0")

    variant("python", default=True, description="the package horovod, for every Python from 3.9 on")
    variant("torch", default=False, when="+python", description="PyTorch, where the users' environments have none")
    variant("pmix", default=True,
            description="ranks can be started by PMIx launchers (srun --mpi=pmix, jsrun, prterun)")
    variant("hwloc", default=True, description="ranks are bound by what hwloc knows of the machine")
    variant("mpi", default=True, description="tensors travel over the MPI of the program; a plugin for its ABI")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("highway@1.0.3:", type="build")
    depends_on("pmix", when="+pmix")
    depends_on("hwloc@2.7.1:", when="+hwloc")
    depends_on("mpi", when="+mpi")
    with when("+python"):
        depends_on("python@3.9:", type=("build", "link", "run"))
        depends_on("py-cloudpickle", type="run")
    depends_on("py-torch", when="+torch", type="run")

    conflicts("%gcc@:11", msg="C++20 needs GCC 12 or later")

    generator("ninja")

    def cmake_args(self):
        arguments = [
            self.define_from_variant("HVD_BUILD_PYTHON", "python"),
            self.define("HVD_BUILD_TESTS", False),
            self.define("HVD_BUILD_EXAMPLES", False),
            self.define("HVD_WARNINGS_ARE_ERRORS", False),
            self.define("CMAKE_INSTALL_LIBDIR", "lib"),
        ]
        if self.spec.satisfies("+python"):
            arguments.append(self.define("Python_EXECUTABLE", self.spec["python"].command.path))
        if self.spec.satisfies("+mpi"):
            # Only headers are needed, because the plugin is bound to the MPI of the process.
            abi = "OPENMPI" if self.spec["mpi"].name == "openmpi" else "MPICH"
            arguments.append(self.define(f"HVD_MPI_{abi}_INCLUDE", self.spec["mpi"].prefix.include))
        return arguments

    def setup_run_environment(self, env):
        if self.spec.satisfies("+python"):
            # This is not the package itself. The package would come before one that a user installed into an
            # environment.
            env.prepend_path("PYTHONPATH", self.prefix.lib.horovod.pythonpath)

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def check_install(self):
        launcher = Executable(self.prefix.bin.horovodrun)
        launcher("--check-build")
        launcher("-np", "2", "true")
