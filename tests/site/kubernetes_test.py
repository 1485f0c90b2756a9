"""Checks the manifests of containers/kubernetes against the schemas of Kubernetes and of MPIJob.

Label site; runs in the environment build/site-venv, which has kubernetes-validate. No package has the schema of MPIJob:
this file lists the fields of kubeflow.org/v2beta1, and checks the pods of an MPIJob as pods of a Job."""
import os
import sys
import unittest

import installed

VENV = installed.ROOT / "build" / "site-venv"
if os.environ.get("HVD_INSIDE") != "1":
    installed.skip_without(VENV / "bin" / "kubernetes-validate", "kubernetes-validate")
    program = str(VENV / "bin" / "python")
    os.execve(program, [program, *sys.argv], {**os.environ, "HVD_INSIDE": "1"})

import kubernetes_validate  # noqa: E402
import yaml  # noqa: E402

FOLDER = installed.ROOT / "containers" / "kubernetes"
KUBERNETES = "1.34"
MPIJOB = {"spec": {"slotsPerWorker": int, "sshAuthMountPath": str,
                   "launcherCreationPolicy": {"AtStartup", "WaitForWorkersReady"},
                   "mpiImplementation": {"OpenMPI", "Intel", "MPICH"}, "runLauncherAsWorker": bool, "runPolicy": dict,
                   "mpiReplicaSpecs": dict},
          "runPolicy": {"cleanPodPolicy": {"None", "Running", "All"}, "backoffLimit": int, "activeDeadlineSeconds": int,
                        "ttlSecondsAfterFinished": int, "suspend": bool, "schedulingPolicy": dict},
          "replica": {"replicas": int, "restartPolicy": {"Never", "OnFailure", "Always", "ExitCode"}, "template": dict}}


def documents(name):
    return list(yaml.safe_load_all((FOLDER / name).read_text(encoding="utf-8")))


class Manifests(unittest.TestCase):
    def fits(self, part, schema):
        for name, value in part.items():
            self.assertIn(name, schema)
            allowed = schema[name]
            fits = value in allowed if isinstance(allowed, set) else isinstance(value, allowed)
            self.assertTrue(fits, f"{name}: {value}")

    def test_job_and_service_fit_the_schemas_of_kubernetes(self):
        for name in ("job.yaml", "job-without-ssh.yaml"):
            for document in documents(name):
                kubernetes_validate.validate(document, KUBERNETES, strict=True)

    def test_job_ends_when_its_launcher_does(self):
        service, job = documents("job.yaml")
        spec = job["spec"]
        self.assertEqual(spec["completionMode"], "Indexed")
        self.assertEqual(spec["completions"], spec["parallelism"])
        self.assertEqual(spec["successPolicy"], {"rules": [{"succeededIndexes": "0"}]})
        self.assertEqual(spec["template"]["spec"]["subdomain"], service["metadata"]["name"])
        self.assertEqual(service["spec"]["selector"]["job-name"], job["metadata"]["name"])
        variables = {row["name"]: row["value"] for row in spec["template"]["spec"]["containers"][0]["env"]}
        self.assertEqual(variables["PODS"], str(spec["completions"]))

    def test_pods_of_the_job_without_ssh_are_its_ranks_and_need_no_root(self):
        service, job = documents("job-without-ssh.yaml")
        spec, pod = job["spec"], job["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        variables = {row["name"]: row.get("value") for row in container["env"]}
        self.assertEqual(spec["completionMode"], "Indexed")
        self.assertEqual([spec["completions"], spec["parallelism"]], [int(variables["HOROVOD_SIZE"])] * 2)
        first = f"{job['metadata']['name']}-0.{service['metadata']['name']}"
        self.assertEqual(variables["HOROVOD_GLOO_RENDEZVOUS_ADDR"], first)
        self.assertEqual(pod["subdomain"], service["metadata"]["name"])
        self.assertEqual(service["spec"]["selector"]["job-name"], job["metadata"]["name"])
        self.assertTrue(pod["securityContext"]["runAsNonRoot"])
        self.assertEqual(container["securityContext"],
                         {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}})
        secrets = [row["name"] for row in container["env"] if "secretKeyRef" in row.get("valueFrom", {})]
        self.assertEqual(secrets, ["HOROVOD_SECRET_KEY"])
        self.assertNotIn("ssh", " ".join(container["command"]))

    def test_mpijob_fits_its_schema_and_its_pods_that_of_kubernetes(self):
        (job,) = documents("mpijob.yaml")
        self.assertEqual((job["apiVersion"], job["kind"]), ("kubeflow.org/v2beta1", "MPIJob"))
        self.fits(job["spec"], MPIJOB["spec"])
        self.fits(job["spec"]["runPolicy"], MPIJOB["runPolicy"])
        self.assertEqual(set(job["spec"]["mpiReplicaSpecs"]), {"Launcher", "Worker"})
        for name, replica in job["spec"]["mpiReplicaSpecs"].items():
            self.fits(replica, MPIJOB["replica"])
            pod = {**replica["template"]["spec"], "restartPolicy": replica["restartPolicy"]}
            kubernetes_validate.validate({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name.lower()},
                                          "spec": {"template": {"spec": pod}}}, KUBERNETES, strict=True)

    def test_schemas_find_what_is_wrong(self):
        _, job = documents("job.yaml")
        job["spec"]["completionMod"] = "Indexed"
        with self.assertRaises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(job, KUBERNETES, strict=True)
        with self.assertRaises(AssertionError):
            self.fits({"slotsPerWorkers": 1}, MPIJOB["spec"])

    def test_images_are_of_this_version(self):
        for name in ("job.yaml", "job-without-ssh.yaml", "mpijob.yaml"):
            text = (FOLDER / name).read_text(encoding="utf-8")
            self.assertIn(f"image: horovod:{installed.version()}\n", text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
