#pragma once
// What must be known about a site's machine to write a job script for it. It comes from the files of sites/, or from a
// file that the site provides.
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "jobscripts/template.hpp"

namespace hvd::jobscripts {

struct Site {
  std::string name;
  std::string scheduler;  // name of its template
  Values values;          // the site's values by key; sites/README.md explains the keys

  std::string get(std::string_view key) const;  // empty if the site does not say
  // Of a key whose lines may end in "to N nodes": the value of the first line for a job of so many nodes; else empty.
  std::string get_for(std::string_view key, int nodes) const;
  // Returns the greatest `longest` of all sizes of jobs; empty if there is none.
  std::string longest_of_all() const;
  int number(std::string_view key, int otherwise) const;  // the values were checked when the site was read
  // Returns the program that starts the ranks: srun, jsrun, mpiexec or horovodrun.
  std::string launcher() const;
};

// Reads lines "key = value". A key that may be a list is repeated. `name` is the name of the file, without folder and
// ending.
Result<Site> parse_site(std::string_view text, std::string_view name);

// Returns one of the sites that come with Horovod.
Result<Site> find_site(std::string_view name);

// A file of sites/ or templates/ that was compiled in.
struct CompiledFile {
  std::string_view name;  // name of the file without its ending
  std::string_view text;
};
std::span<const CompiledFile> compiled_sites();
std::span<const CompiledFile> compiled_templates();

// Returns null if there is no file with this name.
const CompiledFile* find_file(std::span<const CompiledFile> files, std::string_view name);
// True if the scheduler's template writes the value of the key into scripts.
bool reads(std::string_view scheduler, std::string_view key);
// Returns a text like "lsf, pbs, slurm".
std::string names_of(std::span<const CompiledFile> files);

}  // namespace hvd::jobscripts
