#include "schedulers/captured_jobs.hpp"

namespace hvd::schedulers {
namespace {

Texts operator+(Texts left, const Texts& right) {
  left.insert(right.begin(), right.end());
  return left;
}

const Texts slurm = {{"SLURM_JOB_ID", "17"},       {"SLURM_JOB_NODELIST", "n[1-2]"},
                     {"SLURM_JOB_NUM_NODES", "2"}, {"SLURM_JOB_CPUS_PER_NODE", "8(x2)"},
                     {"SLURM_NTASKS", "3"},        {"SLURM_TASKS_PER_NODE", "2,1"}};
const Texts heterogeneous = {
    {"SLURM_JOB_ID_HET_GROUP_0", "20"},           {"SLURM_JOB_ID_HET_GROUP_1", "21"},
    {"SLURM_JOB_NODELIST_HET_GROUP_0", "n1"},     {"SLURM_JOB_NODELIST_HET_GROUP_1", "n[2-3]"},
    {"SLURM_JOB_CPUS_PER_NODE_HET_GROUP_0", "4"}, {"SLURM_JOB_CPUS_PER_NODE_HET_GROUP_1", "8(x2)"},
    {"SLURM_TASKS_PER_NODE_HET_GROUP_0", "1"},    {"SLURM_TASKS_PER_NODE_HET_GROUP_1", "2(x2)"}};
const Texts summit = {{"LSB_JOBID", "4711"},
                      {"LSB_JOBINDEX", "0"},
                      {"LSB_MCPU_HOSTS", "batch5 1 h41n08 42 h41n03 42 "},
                      {"CSM_ALLOCATION_ID", "991"}};
const std::string r_of_flux =
    R"({"version": 1, "execution": {"R_lite": [{"rank": "0,2", "children": {"core": "0-7", "gpu": "0-1"}},)"
    R"( {"rank": "1", "children": {"core": "0-3"}}], "starttime": 1699999000.0, "expiration": 1700000600.5,)"
    R"( "nodelist": ["corona[3-4]", "login"]}})";
const std::string qstat_of_pbs =
    "Job Id: 9.server\n    Job_Name = train\n    resources_used.walltime = 00:30:00\n    Resource_List.walltime = "
    "02:00:00\n    exec_vnode = (x3001[0]:ncpus=32:ngpus=2+x3001[1]:ncpus=32:ngp\n\tus=2)+(x3002:ncpus=64:ngpus=4)\n";

}  // namespace

const std::vector<CapturedJob>& captured_jobs() {
  static const std::vector<CapturedJob> jobs = {
      {.key = "slurm", .variables = slurm, .expected = "17 n1:2/8c n2:1/8c"},
      {.key = "slurm",  // a task of a job array, on one node with GPUs
       .variables = {{"SLURM_JOB_ID", "19"},
                     {"SLURM_ARRAY_JOB_ID", "17"},
                     {"SLURM_ARRAY_TASK_ID", "3"},
                     {"SLURM_JOB_NODELIST", "gpu07"},
                     {"SLURM_JOB_CPUS_PER_NODE", "64"},
                     {"SLURM_TASKS_PER_NODE", "4"},
                     {"SLURM_CPUS_PER_TASK", "16"},
                     {"SLURM_GPUS_ON_NODE", "4"},
                     {"SLURM_JOB_END_TIME", "1700000060"}},
       .expected = "17_3 gpu07:4/4c/4g",
       .seconds_left = 60},
      {.key = "slurm",  // a job that such a task has submitted: Slurm is asked about the job itself
       .variables = Texts{{"SLURM_JOB_ID", "25"}, {"SLURM_ARRAY_JOB_ID", "17"}, {"SLURM_ARRAY_TASK_ID", "3"}} + slurm,
       .answers = {{"squeue --noheader --jobs 25 --format %L", "5:00\n"}},
       .expected = "17_3 n1:2/8c n2:1/8c",
       .seconds_left = 300},
      {.key = "slurm",  // the last task of a job array, which has the number of the array
       .variables = {{"SLURM_JOB_ID", "17"},
                     {"SLURM_ARRAY_JOB_ID", "17"},
                     {"SLURM_ARRAY_TASK_ID", "4"},
                     {"SLURM_JOB_NODELIST", "n1"},
                     {"SLURM_JOB_CPUS_PER_NODE", "2"},
                     {"SLURM_TASKS_PER_NODE", "2"}},
       .answers = {{"squeue --noheader --jobs 17_4 --format %L", "10:00\n"}},
       .expected = "17_4 n1:2/2c",
       .seconds_left = 600},
      {.key = "slurm",  // inside a step the number of tasks is the step's, and is not used
       .variables = slurm + Texts{{"SLURM_STEP_ID", "0"}, {"SLURM_GPUS_PER_NODE", "a100:2"}},
       .answers = {{"squeue --noheader --jobs 17 --format %L", "1-00:00:05\n"}},
       .expected = "17 n1:8/8c/2g n2:8/8c/2g",
       .seconds_left = 86405},
      {.key = "slurm",
       .variables = Texts{{"SLURM_JOB_ID", "20"}, {"SLURM_HET_SIZE", "2"}} + heterogeneous,
       .answers = {{"squeue --noheader --jobs 20 --format %L", "UNLIMITED\n"}},
       .expected = "20 n1:1/4c n2:2/8c+1 n3:2/8c+1"},
      {.key = "slurm",  // its other component, without the number of components
       .variables = Texts{{"SLURM_JOB_ID", "21"}} + heterogeneous,
       .expected = "20 n1:1/4c n2:2/8c+1 n3:2/8c+1"},
      {.key = "slurm",  // a job that was submitted within it
       .variables = Texts{{"SLURM_HET_SIZE", "2"}} + heterogeneous + slurm,
       .expected = "17 n1:2/8c n2:1/8c"},
      {.key = "lsf",
       .variables = summit,
       .answers = {{"/opt/ibm/csm/bin/csm_node_attributes_query -n h41n08",
                    "---\nTotal_Records: 1\nRecord_1:\n  discovered_cores:   44\n  discovered_gpus:    6\n"},
                   {"bjobs -noheader -o time_left 4711", "1:30 L\n"}},
       .programs = {"jsrun"},
       .expected = "4711 h41n08:6/42c/6g h41n03:6/42c/6g (launch node batch5)",
       .seconds_left = 5400},
      {.key = "lsf",  // Lassen: the name does not show which host is the launch node, and no CSM answers
       .variables = {{"LSB_JOBID", "5"}, {"LSB_MCPU_HOSTS", "lassen710 1 lassen30 40 lassen31 40"}},
       .programs = {"jsrun"},
       .expected = "5 lassen30:40/40c lassen31:40/40c (launch node lassen710)"},
      {.key = "lsf",  // a job of `bsub -ln_slots`
       .variables = {{"LSB_JOBID", "5"}, {"LSB_DJOB_HOSTFILE", "/spool/hosts"}},
       .files = {{"/spool/hosts", "batch2\nbatch2\nc02n11\nc02n11\nc02n11\nc02n14\nc02n14\nc02n14\n"}},
       .programs = {"jsrun"},
       .expected = "5 c02n11:3/3c c02n14:3/3c (launch node batch2)"},
      {.key = "lsf",  // without JSM the first host runs ranks, too; a task of a job array
       .variables = {{"LSB_JOBID", "6"}, {"LSB_JOBINDEX", "4"}, {"LSB_MCPU_HOSTS", "n1 1 n2 3"}},
       .expected = "6[4] n1:1/1c n2:3/3c"},
      {.key = "lsf", .variables = {{"LSB_JOBID", "7"}, {"LSB_HOSTS", "n1 n2 n1"}}, .expected = "7 n1:2/2c n2:1/1c"},
      {.key = "pbs",
       .variables = {{"PBS_JOBID", "9.server"}, {"PBS_NODEFILE", "/var/spool/pbs/aux/9.server"}},
       .files = {{"/var/spool/pbs/aux/9.server", "x3001.hsn.site\nx3002.hsn.site\n"}},
       .answers = {{"qstat -f 9.server", qstat_of_pbs}},
       .expected = "9.server x3001.hsn.site:1/64c/4g x3002.hsn.site:1/64c/4g",
       .seconds_left = 5400},
      {.key = "pbs",  // a task of a Torque array; its list goes round the hosts
       .variables = {{"PBS_JOBID", "12[3].server"}, {"PBS_NODEFILE", "/aux/12"}},
       .files = {{"/aux/12", "n1\nn2\nn1\nn2\nn1\n"}},
       .expected = "12[3].server n1:3 n2:2"},
      {.key = "sge",
       .variables =
           {{"JOB_ID", "3"}, {"SGE_TASK_ID", "undefined"}, {"NSLOTS", "6"}, {"PE_HOSTFILE", "/spool/3.1/pe_hostfile"}},
       .files = {{"/spool/3.1/pe_hostfile",
                  "n1 3 all.q@n1 UNDEFINED\nn2 2 all.q@n2 UNDEFINED\nn1 1 gpu.q@n1 <NULL>\n"}},
       .answers = {{"qstat -j 3",
                    "job_number:                 3\nhard resource_list:         h_rt=3600\nusage         1:            "
                    "wallclock=00:10:00, cpu=00:00:00, mem=0.00000 GBs\n"}},
       .expected = "3 n1:4/4c n2:2/2c",
       .seconds_left = 3000},
      {.key = "sge", .variables = {{"JOB_ID", "4"}, {"SGE_TASK_ID", "2"}}, .expected = "4.2 localhost:1/1c"},
      {.key = "flux",
       .variables = {{"FLUX_URI", "local:///run/flux/local"}, {"FLUX_ENCLOSING_ID", "f3ETxsR9H"}},
       .answers = {{"flux kvs get resource.R", r_of_flux + "\n"}},
       .expected = "f3ETxsR9H corona3:2/8c/2g corona4:4/4c/0g login:2/8c/2g",
       .seconds_left = 600},
      {.key = "flux",  // a task of a Flux instance that runs as a job of Slurm
       .variables = slurm + Texts{{"FLUX_URI", "local:///tmp/flux"}, {"FLUX_JOB_ID", "17"}},
       .answers =
           {{"flux job info 17 R",
             R"({"version":1,"execution":{"R_lite":[{"rank":"1","children":{"core":"3"}}],"nodelist":["n2"]}})"}},
       .expected = "17 n2:1/1c/0g"},
      {.key = "local",
       .variables = {{"PATH", "/bin"}},
       .files = {{"/proc/self/status", "Name:\thorovodrun\nCpus_allowed_list:\t0-3,8\nMems_allowed:\t1\n"}},
       .expected = " localhost:5/5c"},
  };
  return jobs;
}

}  // namespace hvd::schedulers
