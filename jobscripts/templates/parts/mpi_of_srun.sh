# Where srun by itself serves no PMI (MpiDefault), the ranks meet by PMIx or PMI-2, if srun has one of them.
if [ -z "${SLURM_MPI_TYPE:-}${HOROVOD_SHARED_DIR:-}" ] &&
  scontrol show config 2>/dev/null | grep -q '^MpiDefault *= *none'; then
  served=" $(srun --mpi=list 2>&1 | tr -cs '[:alnum:]_' ' ') "
  if [[ $served == *" pmix "* && $(horovodrun --can-pmix-be-used 2>/dev/null) == "pmix can be used"* ]]; then
    launch+=(--mpi=pmix)
  elif [[ $served == *" pmi2 "* ]]; then
    launch+=(--mpi=pmi2)
  fi
fi
