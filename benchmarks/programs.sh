# shellcheck shell=bash
# What the benchmarks run. The scripts of this folder source this file after tests/setup/prepare.sh.

programs=build/benchmarks-programs

# Prepares .venv-benchmarks, with our wheel.
prepare_python() {
  make_environment .venv-benchmarks "what the benchmarks use" torch==2.13.0 numpy matplotlib cloudpickle \
    'scikit-build-core>=0.10'
  install_horovod .venv-benchmarks || fail "this tree could not be built; the compiler's words are above"
}

# Prepares the peers, our wheel in .venv-benchmarks, and the programs. If everything is there already, this takes
# seconds.
prepare_programs() {
  load_build_tools
  load_packages "as peers" mpich libmpich-dev openmpi-bin libopenmpi-dev
  prepare_python
  { cmake -S . -B $programs -G Ninja -DCMAKE_BUILD_TYPE=Release -DHVD_BUILD_BENCHMARKS=ON -DHVD_BUILD_TESTS=OFF \
    -DHVD_BUILD_EXAMPLES=OFF -DCMAKE_UNITY_BUILD=ON && # with the same options as a wheel
    cmake --build $programs --target benchmarks; } >build/logs/benchmarks-build.log 2>&1 ||
    { tail -n 40 build/logs/benchmarks-build.log; fail "the benchmark programs could not be built"; }
}
