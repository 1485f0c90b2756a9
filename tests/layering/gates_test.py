#!/usr/bin/env python3
"""Each check must be able to fail: it gets a tree with exactly one mistake."""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import closed_sets  # noqa: E402
import includes  # noqa: E402
import names  # noqa: E402
import libc_symbols  # noqa: E402
import lines  # noqa: E402
import makes  # noqa: E402
import owned_names  # noqa: E402
import symbols  # noqa: E402
import words  # noqa: E402

CMAKE = """hvd_layer(base)
hvd_layer(transport USES base native devices connections)
hvd_registry(transport INTERFACE Transport ARGUMENT "")
"""
GOOD = {
    "src/CMakeLists.txt": CMAKE,
    "src/base/ids.hpp": "#include <cstdint>\n",
    "src/base/tensor_view.hpp": "enum class DeviceKind : std::uint8_t { host, cuda, rocm };\n",
    "src/base/transports.hpp": '    {"mpi", "MPI"},\n    {"tcp", "TCP"},\n    {"nccl", false, false, Library::nccl},\n'
                               '    {"inproc", false, false, Library::none},\n',
    "schedulers/slurm.cpp": 'Slurm() : Scheduler({.name = "Slurm", .prefixes = {"SLURM_", "SLURMD_"}}) {}\n',
    "schedulers/other.cpp": 'Other() : Scheduler({.name = "Other", .prefixes = {"LSB_", "PBS_"}}) {}\n',
    "src/base/settings/config.cpp": '    {"HOROVOD_KNOWN", flag, "0", "…"},\n',
    "src/native/posix/thing.hpp": '#include "base/ids.hpp"\n#include <unistd.h>\n',
    "src/native/pmix/client.cpp": "#include <pmix.h>\n",
    "src/topology/layout.hpp": "",
    "src/transport/transport.hpp": '#include "base/ids.hpp"\n',
    "src/connections/node_peers.hpp": '#include "base/ids.hpp"\n',
    "src/connections/node_peers.cpp": '#include "connections/node_peers.hpp"\n',
    "src/transport/shm/slab.hpp": '#include "native/posix/thing.hpp"\n',
    "src/transport/shm.cpp": '#include "connections/node_peers.hpp"\n#include "transport/shm/slab.hpp"\n',
    "src/transport/inproc.cpp": '#include "transport/transport.hpp"\n',
    "src/runtime/engine.hpp": '#include "transport/transport.hpp"\nauto x = "HOROVOD_KNOWN";\n',
    "src/api/horovod.h": "#include <stddef.h>\n",
    "src/api/horovod.hpp": '#include "horovod.h"\n',
    "src/launcher/agent/ranks.cpp": '#include "native/posix/thing.hpp"\n',
    "src/launcher/wire/channel.hpp": "",
    "src/launcher/agent/agent.hpp": '#include "launcher/wire/channel.hpp"\n',
    "src/launcher/horovodrun.cpp": '#include "launcher/agent/agent.hpp"\n',
    "src/python/core/session.hpp": '#include "horovod.h"\n',
    "src/python/core/module.cpp": '#include <Python.h>\n#include "api/horovod.h"\n#include "session.hpp"\n',
    "src/python/horovod/common/util.py": 'EXTENSIONS = ("tensorflow", "torch")\n',
}


class Gates(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)

    def write(self, files):
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def assert_one_fault(self, file, text, words):
        self.write(GOOD | {file: text})
        found = includes.faults_of(self.root)
        self.assertEqual(len(found), 1, found)
        self.assertIn(words, found[0])

    def test_a_good_tree_passes(self):
        self.write(GOOD)
        self.assertEqual(includes.faults_of(self.root), [])
        self.assertEqual(names.faults_of(self.root), [])
        self.assertEqual(lines.faults_of(self.root), [])
        self.assertEqual(closed_sets.faults_of(self.root), [])
        self.assertEqual(makes.faults_of(self.root), [])
        self.assertEqual(owned_names.faults_of(self.root), [])
        self.assertEqual(words.faults_of(self.root), [])

    def test_an_arrow_upwards_is_found(self):
        self.assert_one_fault("src/base/ids.hpp", '#include "runtime/engine.hpp"\n', "base must not include")

    def test_siblings_do_not_see_each_other(self):
        self.assert_one_fault("src/devices/host.cpp", '#  include "topology/layout.hpp"\n', "devices must not include")
        self.assert_one_fault("src/devices/host.cpp", '#include "transport/transport.hpp"\n',
                              "devices must not include")

    def test_collectives_do_not_see_c_libraries(self):
        self.assert_one_fault("src/collectives/ring.cpp", '#include "native/posix/thing.hpp"\n', "collectives must not")

    def test_the_launcher_sees_a_part_of_native(self):
        self.write({"src/native/hwloc/tree.hpp": "#include <hwloc.h>\n"})
        self.assert_one_fault("src/launcher/agent/bind.cpp", '#include "native/hwloc/tree.hpp"\n',
                              "launcher must not include native/hwloc/tree.hpp")

    def test_rooms_of_a_layer_include_each_other_one_way(self):
        self.assert_one_fault("src/launcher/wire/channel.hpp", '#include "launcher/agent/agent.hpp"\n',
                              "the room launcher/wire must not include launcher/agent/agent.hpp")

    def test_what_lies_beside_the_rooms_is_not_for_them(self):
        self.write({"src/launcher/beside.hpp": ""})
        self.assert_one_fault("src/launcher/wire/channel.hpp", '#include "launcher/beside.hpp"\n',
                              "the room launcher/wire must not include launcher/beside.hpp")

    def test_a_room_without_a_row_is_found(self):
        self.assert_one_fault("src/launcher/attic/thing.hpp", "", "attic is no room of launcher")

    def test_the_table_of_rooms_has_no_circle(self):
        for rooms in includes.ROOMS.values():
            for room, uses in rooms.items():
                self.assertLessEqual(uses, set(list(rooms)[:list(rooms).index(room)]), f"{room} uses a later row")

    def test_the_extension_sees_the_c_header_alone(self):
        self.assert_one_fault("src/python/core/x.cpp", '#include "base/ids.hpp"\n', "python must not include")

    def test_entries_of_a_registry_do_not_know_each_other(self):
        self.assert_one_fault("src/transport/inproc.cpp", '#include "transport/shm/slab.hpp"\n',
                              "must not know each other")

    def test_headers_of_libraries_stay_in_native(self):
        for header in ("mpi.h", "nccl.h", "cuda_runtime.h", "hwloc.h", "hwloc/helper.h", "pmix_server.h", "hdf5.h",
                       "torch/extension.h"):
            self.assert_one_fault("src/transport/inproc.cpp", f"#include <{header}>\n", "alone")

    def test_includes_are_written_from_src(self):
        self.assert_one_fault("src/transport/shm.cpp", '#include "shm/slab.hpp"\n', "written from src/")

    def test_what_cmake_links_is_what_the_table_allows(self):
        self.assert_one_fault("src/CMakeLists.txt", CMAKE.replace("hvd_layer(base)", "hvd_layer(base USES runtime)"),
                              "hvd_layer(base) must not use runtime")

    def test_a_file_that_a_plugin_has_forgotten_is_found(self):
        self.write({"src/native/pmix/server.cpp": ""})
        self.assert_one_fault("src/CMakeLists.txt", CMAKE + "hvd_plugin_files(pmix native/pmix/client.cpp)\n",
                              "src/native/pmix/server.cpp: no plugin has this file")

    def test_a_folder_that_is_no_layer_is_found(self):
        self.assert_one_fault("src/stuff/thing.hpp", "", "stuff is no layer")

    def test_names_that_tell_nothing_are_found(self):
        self.write(GOOD)
        self.write({"src/base/utils.hpp": "", "tests/helpers/x.py": ""})
        self.assertEqual(len(names.faults_of(self.root)), 2)

    def test_names_of_tests_that_are_too_long_are_found(self):
        self.write(GOOD)
        self.write({"tests/base/x_test.cpp": f"TEST(X, {'a' * 81}) {{}}\nTEST_F(X, {'b' * 80}) {{}}\n",
                    "tests/x.py": f"def test_{'c' * 81}(self):\n",
                    "tests/cmake/x.cmake": f"add_test(NAME x.{'d' * 81})\n"})
        self.assertEqual(len(names.faults_of(self.root)), 3)

    def test_variables_without_a_row_are_found(self):
        self.write(GOOD)
        self.write({"src/base/log.cpp": 'get("HOROVOD_SECRET_SWITCH")'})
        self.assertIn("HOROVOD_SECRET_SWITCH has no row", names.faults_of(self.root)[0])

    def test_code_that_reads_a_setting_of_users_without_the_files_is_found(self):
        rows = ('    {"HOROVOD_KNOWN", flag, "0", "…"},\n'
                '    {"HOROVOD_RANK", count, "", "…", nowhere, ordinary, "the launcher"},\n')
        config = "  auto config = Config::from(environment, warnings);\n"
        self.write(GOOD | {"src/base/settings/config.cpp": rows, "src/python/horovod/good.py":
                           'os.environ["HOROVOD_KNOWN"] = "1"\nrank = os.environ["HOROVOD_RANK"]\n',
                           "src/runtime/x.cpp": f"with_settings_files(Environment::of_this_process(), w);\n{config}"})
        self.assertEqual(names.faults_of(self.root), [])
        for file, line in (("src/python/horovod/x.py", 'os.environ.get("HOROVOD_KNOWN", "0")'),
                           ("src/python/horovod/x.py", 'os.getenv("HOROVOD_KNOWN")'),
                           ("src/python/horovod/x.py", 'os.environ["HOROVOD_KNOWN"] == "1"'),
                           ("src/python/horovod/x.py", 'if "HOROVOD_KNOWN" in os.environ:'),
                           ("src/api/x.cpp", f"Environment environment = Environment::of_this_process();\n{config}"),
                           ("src/api/x.cpp", "hvd::Config::from(hvd::Environment::of_this_process(), warnings);")):
            self.write({file: f"\n{line}\n"})
            found, = names.faults_of(self.root)
            self.assertIn(f"{file}:2: ", found)
            (self.root / file).unlink()

    def test_code_that_takes_a_flag_or_a_number_from_a_text_is_found(self):
        rows = ('constexpr Rule flag{"flag", Rule::Form::flag};\nconstexpr Rule text{"text", Rule::Form::text};\n'
                'constexpr Rule count{"count", Rule::Form::integer, 0, 9};\n'
                '    {"HOROVOD_KNOWN", flag, "0", "…"},\n    {"HOROVOD_TIMES", count, "0", "…"},\n'
                '    {"HOROVOD_RANK", count, "", "…"},\n    {"HOROVOD_FILE", text, "", "…"},\n')
        self.write(GOOD | {"src/base/settings/config.cpp": rows, "src/base/settings/x.cpp": 'get("HOROVOD_TIMES")\n',
                           "src/bootstrap/pmi_bridge/preload.c": 'getenv("HOROVOD_KNOWN")\n',
                           "src/runtime/x.cpp": 'is_on(environment, "HOROVOD_KNOWN")\nvalue.get(name)\n'
                           'number_of(environment, "HOROVOD_TIMES")\nget("HOROVOD_FILE")\nnumber("HOROVOD_RANK")\n'})
        self.assertEqual(names.faults_of(self.root), [])
        self.write({"src/runtime/x.hpp": 'constexpr const char* of_header = "HOROVOD_KNOWN";\n'})
        for line in ('environment.get("HOROVOD_KNOWN")', 'environment.number("HOROVOD_TIMES")',
                     'std::getenv("HOROVOD_KNOWN")', 'all.get(\n"HOROVOD_TIMES")', "environment.has(mine)",
                     "environment.get(x::of_header)"):
            self.write({"src/api/x.cpp": f'auto mine = "HOROVOD_TIMES";\n{line};\n'})
            found, = names.faults_of(self.root)
            self.assertIn("src/api/x.cpp:2: HOROVOD_", found)
            self.assertIn("read it by is_on() or number_of()", found)

    def test_settings_that_nothing_reads_are_found(self):
        rows = '    {"HOROVOD_KNOWN", flag, "0", "…"},\n    {"HOROVOD_OLD", text, "", "…", nowhere, idle},\n'
        self.write(GOOD | {"src/base/settings/config.cpp": rows, "src/base/settings/config.hpp": "bool foo = false;\n"})
        self.assertEqual(names.faults_of(self.root), [])
        for row, word in (('flag_at<&Config::foo>', "&Config::foo"), ("nowhere", "HOROVOD_FOO")):
            self.write({"src/base/settings/config.cpp": f'{rows}    {{"HOROVOD_FOO", flag, "0",\n     "…", {row}}},\n'})
            found, = names.faults_of(self.root)
            self.assertIn(f"nothing reads {word}", found)

    def test_long_lines_are_found_in_every_kind_of_file(self):
        files = ("src/base/x.cpp", "src/x/CMakeLists.txt", "tests/x.py", "tests/cmake/x.cmake", "tests/run")
        self.write({file: "#!/bin/sh\n" + "é" * 121 + "\n" for file in files})
        self.write({"README.md": "x" * 121, "src/base/table.cpp": f"// clang-format off\n{'x' * 121}\n",
                    "src/base/fits.cpp": "é" * 120})
        self.assertEqual([fault.split(":")[0] for fault in lines.faults_of(self.root)], sorted(files))

    def test_words_that_we_do_not_use_are_found_in_code_and_pages(self):
        self.write(GOOD)
        files = {"README.md": "Who\never waits for ever, whoever it is.\n", "docs/x.md": "It says so, inside of a job.\n",
                 "docs/y.md": "All but for one hand it on.\n",
                 "src/base/x.cpp": '"the master rank hears of it"\n', "docs/words.md": "goodbye\n", "tests/x.py": "heed\n"}
        self.write(files)
        self.assertEqual([fault.split("': write")[0] for fault in words.faults_of(self.root)], [
            "README.md:2: 'for ever", "README.md:2: 'whoever", "src/base/x.cpp:1: 'master rank",
            "src/base/x.cpp:1: 'hears of", "docs/x.md:1: 'says so", "docs/x.md:1: 'inside of",
            "docs/y.md:1: 'but for", "docs/y.md:1: 'hand it on"])

    def test_a_default_in_a_switch_over_a_closed_set_is_found(self):
        inner = "case 2: switch (n) { case HVD_OK: case hdf5::text: break; default: return 0; }"
        for value, enum in (("hvd::ReduceOp::sum", "ReduceOp"), ("Verb::join", "Verb"), ("Way::Kind::no", "Kind")):
            cases = f"\nswitch (op) {{ case {value}: return 1; {inner}"
            self.write(GOOD | {"src/base/ids.hpp": cases + "}\nswitch (n) { default: break; }\n"})
            self.assertEqual(closed_sets.faults_of(self.root), [])
            self.write({"src/base/ids.hpp": cases + "\n  default: return 2; }\n"})
            found, = closed_sets.faults_of(self.root)
            self.assertIn(f"src/base/ids.hpp:2: the switch over {enum} has a default", found)
            for file in ("tests/base/x_test.cpp", "benchmarks/x.hpp"):
                self.write(GOOD | {file: cases + "\n  default: return 2; }\n"})
                self.assertIn(f"{file}:2: the switch over", closed_sets.faults_of(self.root)[0])
                (self.root / file).unlink()

    def test_a_verb_of_c_that_python_lacks_is_found(self):
        header = "typedef enum hvd_verb {\n  HVD_ALLREDUCE,\n  HVD_JOIN = 6 /* x */\n} hvd_verb;\n"
        module = 'x = {{"ALLREDUCE", HVD_ALLREDUCE},\n     {"JOIN", HVD_JOIN}};\n'
        self.write(GOOD | {"src/api/horovod.h": header, "src/python/core/module.cpp": module,
                           "src/api/horovod.hpp": "HVD_ALLREDUCE"})
        self.assertEqual(closed_sets.faults_of(self.root), [])
        self.write({"src/python/core/module.cpp": module.replace("HVD_JOIN", "HVD_BARRIER") + "use(HVD_JOIN);\n"})
        found, = closed_sets.faults_of(self.root)
        self.assertIn("src/python/core/module.cpp: HVD_JOIN of hvd_verb", found)

    def test_a_reduce_operation_that_the_users_of_a_framework_lack_is_found(self):
        header = "typedef enum hvd_reduce_op {\n  HVD_AVERAGE = 0,\n  HVD_MIN = 3\n} hvd_reduce_op;\n"
        self.write(GOOD | {"src/api/horovod.h": header, "src/python/core/module.cpp": '{"A", HVD_AVERAGE}, {"M", HVD_MIN}',
                           "src/python/horovod/torch/__init__.py": "Average, Min",
                           "src/python/horovod/torch/mpi_ops.py": "Average, Min"})
        self.assertEqual(closed_sets.faults_of(self.root), [])
        self.write({"src/python/horovod/torch/__init__.py": "Average"})
        found, = closed_sets.faults_of(self.root)
        self.assertIn("src/python/horovod/torch/__init__.py: HVD_MIN of hvd_reduce_op", found)

    def test_a_verb_without_a_gradient_for_torch_is_found(self):
        verb = "class Gather(torch.autograd.Function): pass\nprepare(_core.GATHER)\nif wants_gradient([tensor]): pass\n"
        header = "typedef enum hvd_verb { HVD_GATHER = 0, HVD_JOIN = 6 } hvd_verb;\n"
        self.write(GOOD | {"src/api/horovod.h": header, "src/python/core/module.cpp": '{"G", HVD_GATHER}, {"J", HVD_JOIN}',
                           "src/api/horovod.hpp": "HVD_GATHER", "src/python/horovod/torch/_join.py": "_core.JOIN"})
        for text, has_gradient in ((verb, True), (verb.replace("if wants_gradient([tensor])", "if True"), False),
                                   (verb.replace("(torch.autograd.Function)", ""), False)):
            self.write({"src/python/horovod/torch/_gather.py": text})
            self.assertEqual(["torch/_gather.py: GATHER" in fault for fault in closed_sets.faults_of(self.root)],
                             [] if has_gradient else [True])

    def test_a_function_about_the_job_that_a_binding_lacks_is_found(self):
        basics = ("class HorovodBasics:\n    @property\n    def PATH(self):\n    def rank(self):\n    def _mpi(self):\n"
                  "\n\ndef size():\n")
        self.write({f"src/python/horovod/{binding}/mpi_ops.py": "" for binding in ("torch", "tensorflow")})
        files = {f"src/python/horovod/{file}": "rank\n" for file in closed_sets.files_with_basics(self.root)}
        self.assertEqual(len(files), 8)
        self.write(GOOD | files | {"src/python/horovod/common/basics.py": basics})
        self.assertEqual(closed_sets.faults_of(self.root), [])
        for file in files:
            self.write(files | {file: "local_rank\n"})
            found, = closed_sets.faults_of(self.root)
            self.assertIn(f"{file}: HorovodBasics.rank", found)

    def test_a_kind_of_device_with_the_number_of_another_is_found(self):
        header = "typedef enum hvd_device { HVD_HOST = 0, HVD_CUDA = 1, HVD_SYCL = 3 } hvd_device;\n"
        streams, kinds = "src/python/horovod/tensorflow/_streams.py", '_KINDS = {None: 0, "cuda": 1, "sycl": 3}\n'
        self.write(GOOD | {"src/api/horovod.h": header, streams: kinds})
        self.assertEqual(closed_sets.faults_of(self.root), [])
        for number, kind in ((0, "HOST"), (1, "CUDA"), (3, "SYCL")):
            self.write({streams: kinds.replace(str(number), "2")})
            found, = closed_sets.faults_of(self.root)
            self.assertIn(f"{streams}: HVD_{kind} of hvd_device", found)

    def test_a_binding_that_a_list_of_frameworks_lacks_is_found(self):
        whole = {"src/python/horovod/jax/mpi_ops.py": "", "src/python/horovod/common/util.py": 'EXTENSIONS = ("jax", "x")',
                 "src/launcher/options/check_build.cpp": """for m in ('jax', 'x') item(python.has("jax"), "JAX")""",
                 "pyproject.toml": 'all = []\njax = ["jax"]\n'}
        self.write(GOOD | whole)
        self.assertEqual(closed_sets.faults_of(self.root), [])
        for file, word in (("src/python/horovod/common/util.py", '"jax"'), ("pyproject.toml", "\njax ="),
                           ("src/launcher/options/check_build.cpp", "'jax'"),
                           ("src/launcher/options/check_build.cpp", '"jax"')):
            self.write(whole | {file: whole[file].replace(word, "")})
            found, = closed_sets.faults_of(self.root)
            self.assertIn(f"{file}: does not know the binding src/python/horovod/jax", found)

    def test_an_operation_of_tensorflow_that_one_language_lacks_is_found(self):
        whole = {"src/python/tensorflow/collectives.cpp": '{{"HorovodSum", x}}', "src/python/tensorflow/facts.cpp": "",
                 "src/python/horovod/tensorflow/_library.py": 'COLLECTIVES = (\n    "HorovodSum")\n',
                 "src/python/horovod/tensorflow/mpi_ops.py": '@tf.RegisterGradient("HorovodSum")\n'}
        self.write(GOOD | whole)
        self.assertEqual(closed_sets.faults_of(self.root), [])
        for file, text, fault in (("_library.py", "COLLECTIVES = ()\n", "not both"), ("mpi_ops.py", "", "no gradient")):
            self.write(whole | {f"src/python/horovod/tensorflow/{file}": text})
            found, = closed_sets.faults_of(self.root)
            self.assertIn(fault, found)

    def test_a_library_without_a_row_of_symbols_is_found(self):
        self.assertEqual(list(symbols.faults_of_rows()), [])
        symbols.SYMBOLS_OF["native/ofi"] = "fi_"
        self.addCleanup(symbols.SYMBOLS_OF.pop, "native/ofi")
        self.assertIn("native/ofi needs a row both", *symbols.faults_of_rows())

    def test_a_library_whose_headers_nobody_confines_is_found(self):
        self.assert_one_fault("src/native/ofi/domain.hpp", "#include <rdma/fabric.h>\n", "need a row in HEADERS_OF")

    def test_a_make_of_gpu_is_found_outside_of_its_folders(self):
        self.write(GOOD | {
            "src/devices/cuda/gpu.cpp": "cuda::Gpu gpu;\n", "src/base/gpu_makes.cpp": 'auto row = "cuda";\n',
            "src/base/log.cpp": "// NCCL\n/* two\nCUDA */ int x;\n",
            "src/python/horovod/torch/x.py": '"""For CUDA."""\ncuda_built(), rocm_built()  # CUDA\n'})
        self.assertEqual(makes.faults_of(self.root), [])
        self.write({"src/base/tensor_view.hpp": "enum class DeviceKind : std::uint8_t { host, cuda, rocm, sycl };\n",
                    "src/devices/sycl.cpp": "sycl::queue queue;\n"})
        self.assertEqual(makes.faults_of(self.root), [])
        kinds = {"src/base/tensor_view.hpp": (self.root / "src/base/tensor_view.hpp").read_text()}
        makes.OTHER_NAMES.append("level_?zero")
        self.addCleanup(makes.OTHER_NAMES.pop)
        self.write({"src/native/level_zero/driver.hpp": "level_zero::Driver driver;\n"})
        self.assertEqual(makes.faults_of(self.root), [])
        for file, line in (("api/z.cpp", '"sycl"'), ("api/l.cpp", "LevelZero x;"), ("runtime/engine.cpp", "DeviceKind::cuda;"),
                           ("api/x.cpp", '"see http://x", "NCCL"'), ("python/horovod/x.py", 'device = "cuda"'),
                           ("python/horovod/torch/x.py", "tensor.is_cuda"),
                           ("python/horovod/torch/x.py", "torch.cuda.synchronize()"), ("api/y.cpp", "case HVD_ROCM:"),
                           ("cmake/x.cmake", "hvd_nccl_plugin()")):
            self.write(GOOD | kinds | {"src/" + file: "// CUDA\n\n" * file.endswith("cpp") + line + "\n"})
            found, = makes.faults_of(self.root)
            self.assertIn(f"src/{file}:{3 if file.endswith('cpp') else 1}: names a make of GPU", found)
            (self.root / "src" / file).unlink()

    def test_every_file_that_may_name_a_make_of_gpu_does(self):
        source = pathlib.Path(__file__).parents[2] / "src"
        known = "|".join(makes.makes_of(source))
        for file in makes.ALLOWED:
            path = source / file
            self.assertTrue(path.is_file() and list(makes.lines_with_names(path, known)),
                            f"{file} needs no row of ALLOWED")

    def test_the_name_of_a_transport_is_found_where_it_is_compared(self):
        self.write(GOOD | {"src/transport/mpi.cpp": 'if (name == "mpi") {}\n', "src/base/log.cpp": 'open("mpi");\n'})
        self.assertEqual(owned_names.faults_of(self.root), [])
        for line in ('x = name == "tcp";', 'x = "mpi" != name;', 'x = name.starts_with("tcp");'):
            self.write({"src/runtime/engine.cpp": f"\n{line}\n"})
            found, = owned_names.faults_of(self.root)
            self.assertIn("src/runtime/engine.cpp:2: ", found)
            self.assertIn("compares with the name of a transport", found)

    def test_code_that_reads_a_text_back_is_found(self):
        self.write(GOOD | {"src/base/error_ids.cpp": 'return " [HVD" + id;\n',
                           "src/base/log.cpp": '// [HVD2104]\nif (error.id == "HVD2104") name.find("x");\n'})
        self.assertEqual(owned_names.faults_of(self.root), [])
        for line in ('text + " [HVD1004]"', 'error.message.find("has a table of")', 'knob.meaning.starts_with("set by")',
                     'std::string_view(hvd_last_error()).ends_with("x")'):
            self.write({"src/runtime/engine.cpp": f"\n{line};\n"})
            found, = owned_names.faults_of(self.root)
            self.assertIn("src/runtime/engine.cpp:2: ", found)

    def test_a_second_way_to_do_what_has_an_owner_is_found(self):
        spawn = "::posix_spawnp(&child, words[0], 0, 0, 0, 0);\n"
        self.write(GOOD | {"src/native/posix/processes/spawn.cpp": spawn, "src/base/log.cpp": "std::thread() == thread;\n"})
        self.assertEqual(owned_names.faults_of(self.root), [])
        for line in (spawn, 'std::thread([] {});\n', 'x.get("PATH").value_or("/bin");\n', 'f("%.1f MB", 1);\n'):
            self.write({"src/runtime/engine.cpp": "\n" + line})
            found, = owned_names.faults_of(self.root)
            self.assertIn("src/runtime/engine.cpp:2: ", found)

    def test_the_variable_of_a_scheduler_is_found_outside_of_schedulers(self):
        line = 'get("SLURM_JOB_ID");\n'
        self.write(GOOD | {"schedulers/slurm/job.cpp": line, "src/bootstrap/slurm.cpp": line,
                           "src/base/log.cpp": "// SLURM_JOB_ID\n" 'say("set SLURM_CONF or PBS_JOBID");\n'})
        self.assertEqual(owned_names.faults_of(self.root), [])
        for name in ("SLURM_JOB_ID", "LSB_JOBID", "PBS_"):
            self.write({"src/runtime/engine.cpp": f'\nget("{name}");\n'})
            found, = owned_names.faults_of(self.root)
            self.assertIn(f'src/runtime/engine.cpp:2: "{name}" names a variable of a scheduler', found)

    def test_a_variable_that_no_prefix_of_its_scheduler_covers_is_found(self):
        self.write(GOOD)
        file = "schedulers/slurm/job.cpp"
        for line in ('get("SLURMD_NODENAME")', 'has("ENVIRONMENT")', 'f(environment, "SLURM_NTASKS" + suffix)'):
            self.write({file: f"environment.{line};\n"})
            self.assertEqual(owned_names.faults_of(self.root), [])
        for line in ('environment.get("LSB_JOBID")', 'compare(found, environment, "LSB_JOBID", 1)',
                     'for (const char* name : {"SLURM_JOB_ID", "LSB_JOBID"}) f(name)'):
            self.write({file: f"\n{line};\n"})
            found, = owned_names.faults_of(self.root)
            self.assertIn(f"{file}:2: LSB_JOBID begins with no prefix of its scheduler", found)

    def test_symbols_of_optional_libraries_and_stray_exports_are_found(self):
        self.write({
            "good.h": "HVD_API int hvd_one(void);\nHVD_API const char* hvd_two(int);\n",
            "good.c": "int hvd_one(void) { return 1; }\nconst char* hvd_two(int x) { return x ? \"\" : 0; }\n",
            "bad.c": "int MPI_Send(void); int hvd_one(void) { return MPI_Send(); } void stray(void) {}\n",
        })
        for name in ("good", "bad"):
            subprocess.run(["cc", "-shared", "-fPIC", "-nostartfiles", "-o", self.root / f"{name}.so",
                            self.root / f"{name}.c"], check=True)
        header = str(self.root / "good.h")
        self.assertEqual(list(symbols.faults_of(str(self.root / "good.so"), header)), [])
        found = "\n".join(symbols.faults_of(str(self.root / "bad.so"), header))
        for words in ("needs MPI_Send", "exports stray", "does not export hvd_two"):
            self.assertIn(words, found)

    def test_functions_of_a_late_c_library_are_found(self):
        self.write({
            "good.c": "#include <pthread.h>\n#include <sys/stat.h>\n"
                      "int f(struct stat* s, pthread_t t) { return stat(\"\", s) + pthread_join(t, 0); }\n",
            "bad.c": "#define _GNU_SOURCE\n#include <string.h>\nconst char* f(int s) { return strerrorname_np(s); }\n",
        })
        for name in ("good", "bad"):
            subprocess.run(["cc", "-shared", "-fPIC", "-o", self.root / f"{name}.so", self.root / f"{name}.c"],
                           check=True)
        self.assertEqual(list(libc_symbols.faults_of(str(self.root / "good.so"))), [])
        found = "\n".join(libc_symbols.faults_of(str(self.root / "bad.so")))
        self.assertIn("needs strerrorname_np, which came with glibc 2.32: sites have 2.28", found)


if __name__ == "__main__":
    unittest.main()
