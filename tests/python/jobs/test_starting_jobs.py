"""A rank starts another job, during its own job or after it. The launcher also runs as a Python module."""
import os
import subprocess
import sys
import textwrap

HOROVODRUN = os.environ.get("HOROVODRUN", "horovodrun")


def test_a_rank_may_start_a_job_and_its_children_may_not_join(tmp_path):
    (tmp_path / "program.py").write_text(textwrap.dedent("""
        import os, subprocess, sys
        from horovod.common.basics import HorovodBasics

        hvd = HorovodBasics()  # without a framework, which takes seconds to import
        ranks = int(sys.argv[1])
        hvd.init()
        assert hvd.size() == ranks
        if ranks == 2:
            for environment in (None, dict(os.environ)):
                child = subprocess.run([sys.executable, __file__, "2"], env=environment,
                                       stderr=subprocess.PIPE, text=True)
                assert child.returncode == 1 and "is a child of the rank" in child.stderr, child.stderr
            job = [HOROVODRUN, "-np", "3", sys.executable, __file__, "3"]
            subprocess.run(job, env=dict(os.environ), check=True)
            hvd.shutdown()
            subprocess.run(job, env=dict(os.environ), check=True)
            hvd.init()
            assert hvd.size() == ranks
            child = subprocess.run([sys.executable, __file__, "2"], stderr=subprocess.PIPE, text=True)
            assert child.returncode == 1 and "is a child of the rank" in child.stderr, child.stderr
    """).replace("HOROVODRUN", repr(HOROVODRUN)))
    found = subprocess.run([HOROVODRUN, "-np", "2", sys.executable, str(tmp_path / "program.py"), "2"], text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=240)
    assert found.returncode == 0, found.stdout


def test_the_launcher_is_a_module_too():
    for start in (["-m", "horovod.runner.launch"],
                  ["-c", "from horovod.runner.launch import run_commandline; run_commandline()"]):
        found = subprocess.run([sys.executable, *start, "-np", "2", "echo", "-np"], stdout=subprocess.PIPE, text=True,
                               timeout=240)
        assert found.returncode == 0 and sorted(found.stdout.split()) == ["[0]<stdout>:-np", "[1]<stdout>:-np"], found
