#!/bin/bash
# {{title}}: {{nodes}} x {{ranks_per_node}} ranks. Written by horovodrun --jobscript; submit it with qsub.
#PBS -N {{job_name}}
%if select
#PBS -l select={{nodes}}:{{select}}
%end
%if not select
%if gpus_per_node
#PBS -l select={{nodes}}:ncpus={{cpus_used}}:mpiprocs={{ranks_per_node}}:ngpus={{gpus_per_node}}
%end
%if not gpus_per_node
#PBS -l select={{nodes}}:ncpus={{cpus_used}}:mpiprocs={{ranks_per_node}}
%end
%end
#PBS -l place=scatter
#PBS -l walltime={{time}}
%if account
#PBS -A {{account}}
%end
%if queue
#PBS -q {{queue}}
%end
%each directive
#PBS {{it}}
%end
#PBS -j oe
%if requeue
#PBS -r y
%end
%if not requeue
#PBS -r n
%end
%each note
# {{it}}
%end

cd "$PBS_O_WORKDIR" || exit
%include environment

%if launcher_is_mpiexec
# The ranks find each other by PMIx.
launch=(mpiexec --pmi=pmix -n {{ranks}} --ppn {{ranks_per_node}}{{launcher_flags}})
%if cpu_bind
# Each rank gets the cores beside its GPU.
launch+=(--cpu-bind "{{cpu_bind}}")
%end
%if not cpu_bind
%if cores_per_rank
launch+=(--cpu-bind depth --depth {{cores_per_rank}})
%end
%end
%end
%if launcher_is_horovodrun
launch=(horovodrun -np {{ranks}}{{launcher_flags}})
%end
%if container
launch+=({{container}})
%end
%if not requeue
exec "${launch[@]}" {{command}}
%end
%if requeue

# PBS sends no signal before the job's time is over, so this script does it. A program that has then saved its state
# ends with exit code 75, and the job goes back into the queue. In its next run the program goes on from its last
# checkpoint.
timeout --foreground --preserve-status --signal=USR1 {{seconds_until_warning}} "${launch[@]}" {{command}}
status=$?
starts=".{{job_name}}.$PBS_JOBID.starts"  # PBS does not tell a job how often it was put back
echo started >>"$starts"
if [ "$status" = 75 ] && [ "$(wc -l <"$starts")" -le "${HOROVOD_MAX_REQUEUES:-{{max_requeues}}}" ] &&
  qrerun "$PBS_JOBID"; then
  exit  # at many sites only operators may call qrerun; the job then ends with 75
fi
rm -f "$starts"
exit "$status"
%end
