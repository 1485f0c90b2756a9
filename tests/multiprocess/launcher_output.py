"""The output of ranks arrives complete and in whole lines."""
import os
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import unittest

from launcher_harness import HOROVODRUN, Job, LauncherTest, listener, receiver, wait_for_end, without_notices


def python(source):
    return [sys.executable, "-c", source]


class Output(LauncherTest):
    def wait_for_ends(self, job, ranks):
        """Waits for the ends of ranks that print "process" and their process id."""
        for line in job.wait_for_lines(ranks, b"<stdout>:process "):
            try:
                pidfd = os.pidfd_open(int(line.split()[-1]))
            except ProcessLookupError:
                continue
            wait_for_end(pidfd, line)
            os.close(pidfd)

    def test_comes_by_whole_lines_with_the_rank_before_each(self):
        job = Job(4, python("import os\nfor i in range(2000): print(f'line {i} of', os.environ['HOROVOD_RANK'])"))
        self.finish(job, 0)
        lines = job.output.decode().splitlines()
        self.assertEqual(len(lines), 8000)
        for rank in range(4):
            own = [line for line in lines if line.startswith(f"[{rank}]<stdout>:")]
            self.assertEqual(own, [f"[{rank}]<stdout>:line {i} of {rank}" for i in range(2000)])

    def test_that_a_full_disk_does_not_take_is_told_on_the_other_stream(self):
        command = [HOROVODRUN, "-np", "2", "sh", "-c", "echo out; echo err >&2"]
        for full, other, lost in [("stdout", "stderr", "output"), ("stderr", "stdout", "error")]:
            with open("/dev/full", "wb") as device:
                ended = subprocess.run(command, check=False, **{full: device, other: subprocess.PIPE})
            self.assertEqual(ended.returncode, 0)
            text = without_notices(getattr(ended, other).decode())
            told = [line for line in text.splitlines() if f"is lost, because standard {lost}" in line]
            self.assertEqual(len(told), 1, text)
            self.assertIn("No space left on device", told[0])
            self.assertIn("the job goes on", told[0])
            self.assertEqual(sum(line.startswith("[") for line in text.splitlines()), 2, text)

    def test_of_standard_error_goes_to_standard_error(self):
        job = Job(2, "echo out; echo err >&2")
        self.finish(job, 0)
        self.assertEqual(sorted(job.output.split(b"\n")), [b"", b"[0]<stdout>:out", b"[1]<stdout>:out"])
        self.assertEqual(sorted(without_notices(job.errors).split(b"\n")),
                         [b"", b"[0]<stderr>:err", b"[1]<stderr>:err"])

    def test_may_have_very_long_lines_and_any_bytes(self):
        source = ("import os, sys\n"
                  "data = bytes(b for b in range(256) if b not in (10, 13)) * 20000\n"
                  "sys.stdout.buffer.write(data + b'\\n'); sys.stdout.buffer.write(b'end\\n')")
        job = Job(2, python(source))
        self.finish(job, 0)
        data = bytes(b for b in range(256) if b not in (10, 13)) * 20000
        lines = job.output.split(b"\n")
        for rank in range(2):
            prefix = b"[%d]<stdout>:" % rank
            self.assertEqual(lines.count(prefix + b"end"), 1)
            self.assertEqual(lines.count(prefix + data), 1)

    def test_is_not_lost_to_a_slow_reader(self):
        # 8 MB, more than all buffers between a rank and the reader can hold. The reader begins when the ranks cannot
        # write any more.
        source = ("import os, sys\n"
                  "for i in range(40000): print('x' * 90, i)\n")
        job = Job(2, python(source))
        job.wait_for_lines(1, b"x")
        self.finish(job, 0)
        numbers = {0: [], 1: []}
        for line in job.output.splitlines():
            match = re.fullmatch(rb"\[([01])\]<stdout>:x{90} (\d+)", line)
            self.assertIsNotNone(match, line)
            numbers[int(match[1])].append(int(match[2]))
        self.assertEqual(numbers, {0: list(range(40000)), 1: list(range(40000))})

    def test_that_is_blocked_does_not_keep_a_failed_job_alive(self):
        # Nobody reads. Rank 1 fails when rank 0 cannot write any more. All ranks must have ended before anybody reads
        # on.
        job = Job(2, 'if [ $HOROVOD_RANK = 0 ]; then echo process $$; exec yes xxxxxxxxxxxxxxxxxxxxxxxxxxxxx; fi; '
                     'mkfifo $TMPDIR/go; echo failing $$; read line <$TMPDIR/go; rm $TMPDIR/go; exit 4', grace="0.1")
        job.wait_for_lines(1, b"<stdout>:failing ")
        rank0 = int(job.wait_for_lines(1, b"<stdout>:process ")[0].split()[-1])
        job.wait_until_asleep(rank0)
        with open(job.folder + "/go", "w") as go:
            go.write("\n")
        self.wait_for_ends(job, 1)
        # The last output of rank 0 has not reached horovodrun yet. Its agent waits only until this output can be sent.
        job.wait_until_asleep(job.agent())
        self.finish(job, 4)

    def test_may_wait_for_a_stopped_horovodrun_while_its_agent_sleeps(self):
        # More bytes than a pipe holds. Therefore horovodrun cannot end at the same time as the ranks.
        job = Job(2, "echo process $$; head -c 200000 /dev/zero | tr '\\0' '\\n'", grace="0.1")
        agent = job.agent()
        self.wait_for_ends(job, 2)
        job.front.send_signal(signal.SIGSTOP)
        job.wait_until_asleep(agent)
        job.front.send_signal(signal.SIGCONT)
        self.finish(job, 0)
        self.assertEqual(job.output.count(b"\n"), 400002)

    def test_ends_lines_at_carriage_returns_and_completes_the_last_line(self):
        job = Job(1, r"printf 'one\rtwo\r\nthree'")
        self.finish(job, 0)
        self.assertEqual(job.output, b"[0]<stdout>:one\r[0]<stdout>:two\r\n[0]<stdout>:three\n")

    def test_may_be_cut_within_the_end_of_a_line(self):
        """The "\
        " is written after the "\\r" has been printed. A line of another rank may be printed between them.
        """
        for other, printed in (("", b"[0]<stdout>:one\r\n"), ("other\n", b"[0]<stdout>:one\r[1]<stdout>:other\n")):
            job = Job(2, "mkfifo $TMPDIR/$HOROVOD_RANK; if [ $HOROVOD_RANK = 0 ]; then printf 'one\\r'; cat $TMPDIR/0; "
                         "echo two; else cat $TMPDIR/1; fi; rm $TMPDIR/$HOROVOD_RANK")
            self.read(job, b"one\r")
            self.write(job, "1", other)
            self.read(job, other.encode())
            self.write(job, "0", "\n")
            self.finish(job, 0)
            self.assertEqual(job.output, printed + b"[0]<stdout>:two\n")

    @staticmethod
    def read(job, text):
        while text not in job.output:
            job.output += os.read(job.front.stdout.fileno(), 1000)

    @staticmethod
    def write(job, fifo, text):
        with open(f"{job.folder}/{fifo}", "w") as file:
            file.write(text)

    def test_can_carry_the_time(self):
        job = Job(1, "echo hello; echo bad >&2", ["--prefix-output-with-timestamp"])
        self.finish(job, 0)
        time = r"\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}"
        self.assertRegex(job.output.decode(), rf"^{time}\[0\]<stdout>:hello\n$")
        self.assertRegex(without_notices(job.errors).decode(), rf"^{time}\[0\]<stderr>:bad\n$")

    def test_can_go_to_files_too(self):
        with tempfile.TemporaryDirectory() as folder:
            job = Job(11, "echo out $HOROVOD_RANK; echo err $HOROVOD_RANK >&2",
                      ["--output-filename", folder + "/deep/er"])
            self.finish(job, 0)
            self.assertEqual(len(os.listdir(folder + "/deep/er")), 11)
            for rank in range(11):
                for name, word in (("stdout", "out"), ("stderr", "err")):
                    with open(f"{folder}/deep/er/rank.{rank:02}/{name}") as file:
                        self.assertEqual(file.read(), f"{word} {rank}\n")
        self.assertEqual(job.output.count(b"\n"), 11)

    def test_of_a_failing_rank_is_complete(self):
        job = Job(2, 'if [ $HOROVOD_RANK = 0 ]; then seq 100000; printf last >&2; exit 9; fi; exec sleep 1000')
        self.finish(job, 9)
        self.assertEqual(job.output.count(b"\n"), 100000)
        self.assertIn(b"[0]<stderr>:last\n", job.errors)

    def test_may_be_closed_from_the_start(self):
        result = subprocess.run(["sh", "-c", f'exec "{HOROVODRUN}" -np 2 sh -c "echo hello; exit 0" >&-'],
                                stderr=subprocess.PIPE)
        self.assertEqual(result.returncode, 0, result.stderr)


class Input(LauncherTest):
    def test_goes_to_rank_0_alone(self):
        result = subprocess.run([HOROVODRUN, "-np", "3", "sh", "-c", "wc -c"], input=b"x" * 300000,
                                stdout=subprocess.PIPE)
        self.assertEqual(sorted(result.stdout.splitlines()),
                         [b"[0]<stdout>:300000", b"[1]<stdout>:0", b"[2]<stdout>:0"])

    def test_is_closed_to_its_writer_when_rank_0_ends(self):
        result = subprocess.run(["bash", "-c", f'yes | "{HOROVODRUN}" -np 2 head -c 2; echo ${{PIPESTATUS[@]}}'],
                                stdout=subprocess.PIPE, timeout=60)
        self.assertEqual(result.stdout.splitlines()[-1], b"141 0")


# Does what a shell does with `horovodrun … &`, `fg`, Ctrl-Z, `bg` and again `fg`. Between these commands it reads the
# terminal itself.
SHELL = """
import os, signal, subprocess, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
job = subprocess.Popen(sys.argv[1:], preexec_fn=os.setpgrp)
def read_lines():
    for _ in range(5): print("shell:" + sys.stdin.readline(), end="", flush=True)
def let_it_read():
    os.tcsetpgrp(0, job.pid)
    print("shell gives", flush=True)
    _, status = os.waitpid(job.pid, os.WUNTRACED)
    os.tcsetpgrp(0, os.getpgrp())
    print("shell takes", hex(status), flush=True)
read_lines()
let_it_read()
job.send_signal(signal.SIGCONT)
read_lines()
let_it_read()
"""


class Terminal(LauncherTest):
    def setUp(self):
        self.text = b""

    def wait_for(self, *wanted):
        """Waits until one of the texts has been printed, and returns that text."""
        while not (found := [text for text in wanted if text in self.text]):
            readable, _, _ = select.select([self.terminal], [], [], 60)
            self.assertTrue(readable, self.text)
            self.text += os.read(self.terminal, 4096)
        self.text = self.text.split(found[0], 1)[1]
        return found[0]

    def write_lines(self, reader):
        for number in range(5):
            os.write(self.terminal, b"%d\n" % number)
            self.assertIn(reader, self.wait_for(b"shell:%d" % number, b"[0]<stdout>:%d" % number))

    def test_is_read_in_the_foreground_alone(self):
        pid, self.terminal = pty.fork()
        if pid == 0:
            os.execv(sys.executable, [sys.executable, "-c", SHELL, HOROVODRUN, "-np", "1", "sh", "-c",
                                      "echo ready; cat; echo end"])
        self.addCleanup(os.close, self.terminal)
        self.wait_for(b"[0]<stdout>:ready")
        for end in (b"\x1a", b"\x04"):
            self.write_lines(b"shell")
            self.wait_for(b"shell gives")
            self.write_lines(b"[0]<stdout>")
            os.write(self.terminal, end)
            self.wait_for(b"shell takes 0x137f" if end == b"\x1a" else b"shell takes 0x0")
        self.assertEqual(os.waitpid(pid, 0)[1], 0)

    def test_that_rank_0_does_not_want_lets_everybody_sleep(self):
        terminal, end = pty.openpty()
        job = Job(1, "", whole_command=["sh", "-c", f'exec "$@" <{os.ttyname(end)}', "sh", HOROVODRUN, "-np", "1",
                                        "sh", "-c", "exec <&-; echo ready; exec sleep 1000"])
        os.close(end)
        job.wait_for_lines(1)
        job.wait_until_asleep(job.agent())
        job.wait_until_asleep(job.front.pid)
        job.front.send_signal(signal.SIGTERM)
        self.finish(job, -signal.SIGTERM)
        os.close(terminal)


class Signals(LauncherTest):
    def test_reach_every_rank(self):
        forwarded = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT, signal.SIGCONT)
        job = Job(2, receiver(*forwarded), grace="0")
        job.wait_for_lines(2)
        for number in forwarded:
            job.front.send_signal(number)
            job.wait_for_lines(2, number.name.encode())
        job.front.send_signal(signal.SIGTERM)
        self.finish(job, -signal.SIGTERM)

    def test_that_warn_reach_neither_a_shell_above_a_rank_nor_workers_below(self):
        job = Job(2, listener(signal.SIGUSR1, signal.SIGUSR2, code=0) + "; exit $?")
        job.wait_for_lines(2)
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            job.front.send_signal(number)
            job.wait_for_lines(2, number.name.encode())
        self.finish(job, 0)

    def test_that_were_ignored_stay_ignored(self):
        shell = "trap '' HUP; exec \"$@\""
        result = subprocess.run(["sh", "-c", shell, "sh", HOROVODRUN, "-np", "1", "grep", "SigIgn",
                                 "/proc/self/status"],
                                stdout=subprocess.PIPE)
        ignored = int(result.stdout.split()[-1], 16)
        self.assertTrue(ignored & (1 << (signal.SIGHUP - 1)))
        self.assertFalse(ignored & (1 << (signal.SIGPIPE - 1)))


if __name__ == "__main__":
    unittest.main()
