#pragma once
// The dialects of the launchers that horovodrun drives, a file for each family.
#include "launcher/job/site_dialect.hpp"

namespace hvd::launcher {

extern const SiteDialect dialect_of_jsrun, dialect_of_pals, dialect_of_flux;  // keepers label the lines
extern const SiteDialect dialect_of_srun, dialect_of_hydra, dialect_of_open_mpi, dialect_of_prrte;

}  // namespace hvd::launcher
