"""A smoke test of an installation of Horovod, for ReFrame: `reframe -c horovod_preflight.py -r`.

-S ranks=N, -S program=/path/of/horovodrun, -S flags='-H n1:4,n2:4'; in a job of a scheduler the flags may stay empty.
"""
import json

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import run_after, sanity_function, performance_function, variable


@rfm.simple_test
class HorovodPreflight(rfm.RunOnlyRegressionTest):
    descr = "horovodrun --preflight finds no fault"
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    local = True
    ranks = variable(int, value=2)
    program = variable(str, value="horovodrun")
    flags = variable(str, value="")
    time_limit = "2m"

    @run_after("init")
    def set_command(self):
        self.executable = self.program
        self.executable_opts = [f"-np {self.ranks}", self.flags, "--preflight=json"]

    @sn.deferrable
    def told(self):
        with open(self.stdout.evaluate(), encoding="utf-8") as file:
            return json.load(file)

    @sanity_function
    def finds_no_fault(self):
        told = self.told().evaluate()
        faults = [f"{check['check']}: {one['host']}: {one['found']} (expected: {one['expected']})"
                  for check in told["checks"] for one in check["findings"] if one["severity"] == "fault"]
        return sn.assert_true(told["ok"], msg="; ".join(faults))

    @performance_function("s")
    def time_of_preflight(self):
        return self.told().evaluate()["seconds"]
