"""The keeper, which stands between an mpiexec and a rank: it reports the rank's end and leaves nothing behind,
whichever process is killed."""
import os
import re
import select
import signal
import subprocess
import sys
import unittest

from launcher_harness import HOROVODRUN, Job, LauncherTest, children_of, listener, marked_processes, wait_for_end

REPORT = re.compile(rb"\x10rprocess (\d+) wait-status (\d+) asked ([01]) at \d+ host \S+\n")
# A rank that answers SIGTERM has time for its answer.
KEEPER = (HOROVODRUN, "--as-keeper-of-a-rank", "1000000", "input-as-it-comes")
IMPATIENT = (HOROVODRUN, "--as-keeper-of-a-rank", "200", "input-as-it-comes")
BACKGROUND = "(setsid sleep 1000 &) ; "


def unpacked(packets):
    """Returns the text that the rank wrote into these packets (launcher/wire/keeper_protocol)."""
    letters = {b"n": b"\n", b"0": b"\0", b"e": b"\x10", b"l": b"<", b".": b""}
    text = b""
    for packet in REPORT.sub(b"", packets).split(b"\n")[:-1]:
        assert packet.startswith(b"\x10o"), packet
        text += re.sub(rb"\x10(.)", lambda match: letters[match[1]], packet[2:])
    return text


class Kept(Job):
    def __init__(self, shell, keeper=KEEPER):
        super().__init__(1, shell, whole_command=[*keeper, "sh", "-c", shell])

    def keeper(self):
        self.wait_for_lines(1)
        return children_of(self.front.pid)[0]


class Keeper(LauncherTest):
    def end(self, job, code):
        """Ends the job and checks its exit code. Also waits for all processes of the job, so that none is left."""
        for pid in marked_processes(job.mark):
            job.watch(pid)
        self.assertEqual(job.finish(), code, job.errors)
        job.assert_nothing_is_left(self)
        return [(int(status), asked == b"1") for _, status, asked in REPORT.findall(job.errors)]

    def test_ends_as_the_rank_does_and_reports_it(self):
        for shell, code, status in (("exit 0", 0, 0), ("exit 7", 7, 7 << 8),
                                    ("kill -SEGV $$", -signal.SIGSEGV, signal.SIGSEGV),
                                    ("exec /no/such/program", 127, 127 << 8)):
            self.assertEqual(self.end(Kept(shell), code), [(status, False)])

    def test_says_what_cannot_be_executed(self):
        result = subprocess.run([*KEEPER, "/no/such/program"], stderr=subprocess.PIPE, check=False)
        self.assertEqual(result.returncode, 127)
        self.assertEqual(b"horovodrun: /no/such/program cannot be executed: No such file or directory\n",
                         unpacked(result.stderr))

    def test_ends_what_the_rank_leaves_in_the_background(self):
        self.assertEqual(self.end(Kept(BACKGROUND + "exit 0"), 0), [(0, False)])

    def test_leaves_input_and_output_to_the_rank(self):
        result = subprocess.run([*KEEPER, "sh", "-c", "cat; echo error >&2"], input=b"a\nb\n",
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True)
        self.assertEqual(unpacked(result.stdout), b"a\nb\n")
        self.assertEqual(unpacked(result.stderr), b"error\n")

    def start_with_input(self, *command, **environment):
        """Starts a command whose input comes in packets. Returns also the pipe for the packets, which stays open."""
        ours, theirs = os.pipe2(os.O_CLOEXEC)
        job = subprocess.Popen([*KEEPER[:3], "packed-input", *command], env=dict(os.environ, **environment), stdin=ours,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        os.close(ours)
        self.addCleanup(os.close, theirs)
        return job, theirs

    def test_tells_the_end_of_packed_input_and_what_is_taken(self):
        job, pipe = self.start_with_input("sh", "-c", "cat; echo end")
        packets = b"".join(b"\x10o%d\x10n\x10e\n" % number for number in range(20000)) + b"\x10z\n"
        while packets:
            packets = packets[os.write(pipe, packets[:1000]):]
        output, errors = job.communicate(timeout=60)
        expected = b"".join(b"%d\n\x10" % number for number in range(20000))
        self.assertEqual(unpacked(output), expected + b"end\n")
        self.assertEqual(sum(map(int, re.findall(rb"\x10t(\d+) 0\n", errors))), len(expected))

    def test_has_packed_input_for_rank_0_alone(self):
        job, _ = self.start_with_input("cat", SLURM_STEP_ID="0", SLURM_STEP_NUM_TASKS="2", SLURM_PROCID="1")
        self.assertEqual(unpacked(job.communicate(timeout=60)[0]), b"")

    def test_tells_that_the_rank_reads_no_more_and_takes_the_rest(self):
        job, pipe = self.start_with_input("sh", "-c", "exec <&-; exec sleep 1000")
        self.assertEqual(job.stderr.readline(), b"\x10t0 1\n")
        for _ in range(1000):
            os.write(pipe, b"\x10o" + b"x" * 900 + b"\n")
        job.terminate()
        job.communicate(timeout=60)

    def test_gives_the_rank_the_words_that_the_user_wrote(self):
        result = subprocess.run([*KEEPER, "printf", "%s|", "\\:", "\\\\:", "", "a:"],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=True)
        self.assertEqual(unpacked(result.stdout), b":|\\:||a:|")

    def test_writes_whole_packets_at_once(self):
        """Every write must consist of whole packets. An mpiexec may read each write separately, and puts a label
        before what it has read and after the end of every line. srun cuts lines at 1024 bytes, and orterun loses
        lines that its labels make longer than 8192 bytes."""
        words = "('loss', ' ', '0.5', '\\n', '50%\\r', 'x' * 10000, '\\n' * 3000, 'no end')"
        script = f"import os, sys\nfor word in {words}: os.write(1, word.encode())"
        ours, theirs = os.pipe2(os.O_CLOEXEC)
        job = subprocess.Popen([*KEEPER, sys.executable, "-c", script], stdout=theirs, stderr=subprocess.PIPE)
        os.close(theirs)
        chunks = list(iter(lambda: os.read(ours, 65536), b""))
        os.close(ours)
        self.assertEqual(unpacked(job.communicate()[1]), b"")
        for chunk in chunks:
            self.assertTrue(chunk.startswith(b"\x10o") and chunk.endswith(b"\n"), chunk)
        self.assertTrue(all(32 <= len(line) + 1 <= 1000 for line in b"".join(chunks).split(b"\n")[:-1]))
        self.assertEqual(unpacked(b"".join(chunks)), b"loss 0.5\n50%\r" + b"x" * 10000 + b"\n" * 3000 + b"no end")

    def test_passes_on_what_those_write_whom_it_ends(self):
        job = Kept("trap 'exit 0' USR1; (trap 'echo bye; exit' TERM; echo ready; kill -USR1 $$; while :; do sleep 1000 "
                   "& wait; done) & wait")
        self.addCleanup(job.clean_up)
        job.wait_for_lines(1)
        self.assertEqual(self.end(job, 0), [(0, False)])
        self.assertEqual(unpacked(job.output), b"ready\nbye\n")

    def test_hands_signals_on_once(self):
        job = Kept(f"exec {sys.executable} -c 'import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, "
                   f"[signal.SIGUSR1])\n"
                   "print(\"ready\", flush=True)\nprint(signal.Signals(signal.sigwait([signal.SIGUSR1])).name)'")
        job.wait_for_lines(1)
        job.front.send_signal(signal.SIGUSR1)
        self.assertEqual(self.end(job, 0), [(0, False)])
        self.assertEqual(unpacked(job.output), b"ready\nSIGUSR1\n")

    def test_does_not_hand_on_what_a_launcher_sent_to_all_processes_of_its_host(self):
        """SIGUSR2 goes to the gate only, which is the process between launcher and keeper. The rank gets it after all
        other signals."""
        for one, asked in ((signal.SIGUSR1, False), (signal.SIGTERM, True)):
            job = Kept(f"exec {sys.executable} -c 'import os, signal, sys\n"
                       "for one in (signal.SIGUSR1, signal.SIGTERM):\n"
                       "    signal.signal(one, lambda number, _: os.write(1, b\"%d\\n\" % number))\n"
                       "signal.signal(signal.SIGUSR2, lambda *_: sys.exit())\nos.write(1, b\"ready\\n\")\n"
                       "while True: signal.pause()'")
            keeper = job.keeper()
            os.kill(keeper, signal.SIGSTOP)  # it sees all copies at once, however slow this machine is
            job.wait_for_state(keeper, "T")
            for pid in (job.front.pid, keeper, children_of(keeper)[0]):
                os.kill(pid, one)
            job.wait_until_asleep(job.front.pid)
            os.kill(keeper, signal.SIGCONT)
            job.front.send_signal(signal.SIGUSR2)
            self.assertEqual(self.end(job, 0), [(0, asked)])
            self.assertEqual(unpacked(job.output), b"ready\n%d\n" % one)

    def test_hands_a_warning_to_the_rank_and_not_to_shells_above_or_workers_below(self):
        job = Kept(listener(signal.SIGUSR1, code=4) + "; exit $?")
        job.wait_for_lines(1)
        job.front.send_signal(signal.SIGUSR1)
        self.assertEqual(self.end(job, 4), [(4 << 8, False)])

    def test_waits_for_the_rank_below_a_shell_that_a_warning_ended(self):
        job = Kept(listener(signal.SIGUSR1, code=6) + "; exit $?")
        shell, = children_of(job.keeper())
        end_of_shell = os.pidfd_open(shell)
        os.kill(shell, signal.SIGUSR1)
        wait_for_end(end_of_shell, "the shell")
        os.close(end_of_shell)
        job.front.send_signal(signal.SIGUSR1)
        self.assertEqual(self.end(job, 6), [(6 << 8, False)])

    def test_ends_the_rank_when_told_to(self):
        job = Kept(BACKGROUND + "trap 'exit 5' TERM; echo ready; while :; do sleep 0.1; done")
        job.wait_for_lines(1)
        job.front.send_signal(signal.SIGTERM)
        self.assertEqual(self.end(job, 5), [(5 << 8, True)])

    def test_leaves_nothing_when_either_of_its_processes_is_killed(self):
        for whom in ("gate", "keeper"):
            job = Kept(BACKGROUND + "trap '' TERM; echo ready; while :; do sleep 0.1; done", IMPATIENT)
            os.kill(job.keeper() if whom == "keeper" else (job.wait_for_lines(1), job.front.pid)[1], signal.SIGKILL)
            self.end(job, -signal.SIGKILL)


if __name__ == "__main__":
    unittest.main()
