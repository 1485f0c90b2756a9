#!/bin/bash
%if launcher_is_jsrun
# {{title}}: {{nodes}} x {{ranks_per_node}} ranks. Written by horovodrun --jobscript; submit it with `bsub FILE`.
%end
%if launcher_is_horovodrun
# {{title}}: {{nodes}} x {{ranks_per_node}} ranks. Written by horovodrun --jobscript; submit it with `bsub <FILE`.
%end
#BSUB -J {{job_name}}
%if launcher_is_jsrun
#BSUB -nnodes {{nodes}}
%end
%if launcher_is_horovodrun
#BSUB -n {{places}}
#BSUB -R "span[ptile={{ranks_per_node}}]"
%if cpus_per_rank
#BSUB -R "affinity[core({{cpus_per_rank}})]"
%end
%if gpus_per_node
#BSUB -gpu "num={{gpus_per_node}}/host:mode=shared"
%end
%end
#BSUB -W {{time}}
%if account
#BSUB {{account_flag}} {{account}}
%end
%if queue
#BSUB -q {{queue}}
%end
%each directive
#BSUB {{it}}
%end
#BSUB -o {{job_name}}.%J.out
#BSUB -e {{job_name}}.%J.err
%if requeue
#BSUB -wa USR1
#BSUB -wt {{warning_minutes}}
#BSUB -Q "99"
%end
%each note
# {{it}}
%end

%include environment

%if launcher_is_jsrun
# One resource set per node: every rank sees all GPUs of its node and chooses one by its local rank.
launch=(jsrun --nrs {{nodes}} --rs_per_host 1 --tasks_per_rs {{ranks_per_node}} --cpu_per_rs {{cpus_used}})
%if gpus_per_node
launch+=(--gpu_per_rs {{gpus_per_node}})
%end
launch+=(--bind packed:{{cpus_per_rank}} --launch_distribution packed --exit_on_error 1{{launcher_flags}})
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

# The ranks get a signal before the job's time is over. A program that has then saved its state ends with exit code 75.
# The script then ends with the exit code that puts the job back into the queue. In its next run the program goes on
# from its last checkpoint.
%include warned_ranks
starts=".{{job_name}}.$LSB_JOBID.starts"  # LSF does not tell a job how often it was put back
echo started >>"$starts"
if [ "$status" = 75 ] && [ "$(wc -l <"$starts")" -le "${HOROVOD_MAX_REQUEUES:-{{max_requeues}}}" ]; then
  exit 99
fi
rm -f "$starts"
exit "$status"
%end
