"""Starts horovodrun with a mark in the environment, and checks that nothing of the job is left.

The tests do not sleep: they wait for lines of output and for the ends of processes (pidfd). The time limits only turn a
hang into a failure.
"""
import contextlib
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

HOROVODRUN = os.environ["HOROVODRUN"]
ROUNDS = int(os.environ.get("HVD_ROUNDS", "5"))
LIMIT_SECONDS = int(os.environ.get("HVD_LIMIT_SECONDS", "60"))


def without_notices(errors):
    """Returns the standard error of horovodrun and its ranks without the notices that horovodrun prints once per job
    if a plugin was not built."""
    notices = ("horovodrun: no PMIx here, ", "horovodrun: the machine is described by /sys, ")
    if isinstance(errors, bytes):
        notices = tuple(notice.encode() for notice in notices)
    return type(errors)().join(line for line in errors.splitlines(True) if not line.startswith(notices))


def marked_processes(mark):
    """Returns all processes with the mark in their environment, except for zombies."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if mark.encode() in file.read():
                    found.append(int(name))
        except OSError:
            pass
    return found


def children_of(pid):
    children = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat") as file:
                text = file.read()
        except OSError:
            continue
        if int(text[text.rindex(")") + 2:].split()[1]) == pid:
            children.append(int(name))
    return children


def activity(pid):
    """Returns the state, processor time and context switches of a process. While it sleeps, the state is "S" and the
    two numbers do not change."""
    with open(f"/proc/{pid}/stat") as stat, open(f"/proc/{pid}/status") as status:
        fields = stat.read().rsplit(")", 1)[1].split()
        return fields[:1] + fields[11:13] + [line for line in status if "ctxt_switches" in line]


def wait_for_end(pidfd, what):
    readable, _, _ = select.select([pidfd], [], [], LIMIT_SECONDS)
    if not readable:
        raise AssertionError(f"{what} did not end within {LIMIT_SECONDS} s")


def receiver(*signals):
    """Returns a command that prints "ready", then prints the name of each of these signals when it arrives, and then
    waits forever."""
    names = ", ".join(f"signal.{one.name}" for one in signals)
    return [sys.executable, "-c", f"import signal; signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32)); "
                                  f"print('ready')\n"
                             f"for one in ({names},): print(signal.Signals(signal.sigwait([one])).name)\n"
                             f"signal.sigwait([])"]


def listener(*signals, code):
    """Returns a shell's words for a process that looks like a rank which listens for stops, with a worker below it. It
    prints "ready", then the name of each of these signals when it arrives. Then it ends with the code, or with 1 if
    the worker has ended before."""
    names = ", ".join(f"signal.{one.name}" for one in signals)
    program = f"""import signal, subprocess, sys, threading
worker = subprocess.Popen(["sleep", "1000"])
signal.pthread_sigmask(signal.SIG_BLOCK, ({names},))
ready = threading.Event()
def listen():
    with open("/proc/thread-self/comm", "w") as name:
        name.write("hvd-stop")
    ready.set()
    threading.Event().wait()
threading.Thread(target=listen, daemon=True).start()
ready.wait()
print("ready", flush=True)
for one in ({names},):
    print(signal.Signals(signal.sigwait([one])).name, flush=True)
sys.exit({code} if worker.poll() is None else 1)"""
    return f"{shlex.quote(sys.executable)} -c {shlex.quote(program)}"


class Job:
    """One run of horovodrun. `shell` is the command that every rank runs."""

    def __init__(self, ranks, shell, flags=(), grace="1", program=HOROVODRUN, whole_command=None, **environment):
        self.mark = "HVD_TEST_MARK_" + uuid.uuid4().hex
        self.folder = tempfile.mkdtemp(prefix="hvd-test-")
        self.shared_memory_before = set(os.listdir("/dev/shm"))
        variables = dict(os.environ, TMPDIR=self.folder, HVD_TEST_MARK=self.mark,
                         HOROVOD_TERMINATION_GRACE_SECONDS=grace)
        variables.update(environment)
        command = shell if isinstance(shell, list) else ["sh", "-c", shell]
        self.front = subprocess.Popen(whole_command or [program, "-np", str(ranks), *flags, *command], env=variables,
                                      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.pidfds = [os.pidfd_open(self.front.pid)]
        self.output = b""
        self.errors = b""

    def wait_for_lines(self, count, containing=b"ready", of_errors=False):
        """Reads standard output (or standard error) until `count` lines contain the text. Returns these lines."""
        limit = time.monotonic() + LIMIT_SECONDS
        stream = self.front.stderr if of_errors else self.front.stdout
        while True:
            text = self.errors if of_errors else self.output
            lines = [line for line in text.split(b"\n")[:-1] if containing in line]
            if len(lines) >= count:
                return lines
            ready, _, _ = select.select([stream], [], [], max(0, limit - time.monotonic()))
            chunk = os.read(stream.fileno(), 65536) if ready else b""
            if not chunk:
                self.clean_up()
                output, errors = self.front.communicate()
                raise AssertionError(f"only {len(lines)} of {count} lines with {containing!r} came: "
                                     f"{self.output + output!r} {self.errors + errors!r}")
            if of_errors:
                self.errors += chunk
            else:
                self.output += chunk

    def agent(self):
        """Returns the agent's process id. Waits until the agent exists; 0 if horovodrun ends first."""
        while self.front.poll() is None:
            for child in children_of(self.front.pid):
                return child
        return 0

    def ranks(self):
        """Returns the processes of the ranks that have not ended."""
        return children_of(self.agent())

    def wait_for_state(self, pid, state):
        """Waits until the process is in this state of proc(5): "S" asleep, "T" stopped; "" ended."""
        limit = time.monotonic() + LIMIT_SECONDS
        found = None
        while found != state:
            if time.monotonic() > limit:
                self.clean_up()
                raise AssertionError(f"process {pid} is in state {found!r}, expected {state!r}")
            try:
                with open(f"/proc/{pid}/stat") as file:
                    found = file.read().rsplit(")", 1)[1].split()[0].replace("Z", "")
            except OSError:
                found = ""

    def wait_until_asleep(self, pid):
        """Waits until the process has not run at all for a quarter of a second. Before that it may still have work
        to do."""
        limit = time.monotonic() + LIMIT_SECONDS
        while time.monotonic() < limit:
            before = activity(pid)
            select.select([], [], [], 0.25)
            if activity(pid) == before and before[0] == "S":
                return
        self.clean_up()
        raise AssertionError(f"process {pid} does not fall asleep: {before}")

    def watch(self, pid):
        """Makes assert_nothing_is_left wait for the end of this process, too."""
        try:
            self.pidfds.append(os.pidfd_open(pid))
        except ProcessLookupError:
            pass

    def finish(self):
        """Waits for horovodrun. Returns its exit code in Python's form (negative: the signal that ended it)."""
        try:
            output, errors = self.front.communicate(timeout=LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            left = marked_processes(self.mark)
            details = []
            for pid in left:
                with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline") as command, \
                        open(f"/proc/{pid}/status") as status:
                    details.append((pid, command.read(), [l for l in status if l.startswith(("State", "Sig", "PPid"))]))
            self.clean_up()
            raise AssertionError(f"horovodrun did not end within {LIMIT_SECONDS} s; there are {details}")
        self.output += output
        self.errors += errors
        return self.front.returncode

    def clean_up(self):
        for pid in marked_processes(self.mark):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        shutil.rmtree(self.folder, ignore_errors=True)

    def assert_nothing_is_left(self, test):
        """Call this after finish(). Checks that there is no process, no temporary file and nothing in /dev/shm."""
        for pidfd in self.pidfds:
            wait_for_end(pidfd, "horovodrun or its agent")
            os.close(pidfd)
        self.pidfds = []
        left = marked_processes(self.mark)
        # The start of the thread sanitizer makes a file tsan.rodata.<pid> for a moment. A kill in that moment leaves
        # the file.
        files = [name for name in os.listdir(self.folder) if not name.startswith("tsan.rodata.")]
        shared = [name for name in set(os.listdir("/dev/shm")) - self.shared_memory_before
                  if any(word in name for word in ("hvd", "horovod", "pmix"))]
        self.clean_up()
        test.assertEqual(left, [], "processes are left")
        test.assertEqual(files, [], "temporary files are left")
        test.assertEqual(shared, [], "shared memory is left")


def last_block(errors):
    """Returns the text from the announcement of the first failure to the end."""
    text = errors.decode()
    return text[text.rindex("Horovod detected that one or more processes exited with non-zero status"):]


class LauncherTest(unittest.TestCase):
    longMessage = True

    def finish(self, job, expected):
        code = job.finish()
        job.assert_nothing_is_left(self)
        self.assertEqual(code, expected, job.errors.decode(errors="replace"))
