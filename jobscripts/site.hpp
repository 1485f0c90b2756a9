#pragma once
// What is to be known of a site's machine to write a job script for it: the files of sites/, or a file of the site's
// own.
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "jobscripts/template.hpp"

namespace hvd::jobscripts {

struct Site {
  std::string name;
  std::string scheduler;  // slurm, lsf or pbs
  Values values;          // by key, in the words of sites/README.md

  std::string get(std::string_view key) const;            // empty if the site does not say
  int number(std::string_view key, int otherwise) const;  // checked when the site was read
};

// Lines "key = value"; a key that may be a list is repeated. `name` is that of the file, without folder and ending.
Result<Site> parse_site(std::string_view text, std::string_view name);

// One of those that come with Horovod.
Result<Site> find_site(std::string_view name);

// A file of sites/ or templates/, as it was compiled in.
struct CompiledFile {
  std::string_view name;  // without ending
  std::string_view text;
};
std::span<const CompiledFile> compiled_sites();
std::span<const CompiledFile> compiled_templates();

// Null if there is none of that name.
const CompiledFile* find_file(std::span<const CompiledFile> files, std::string_view name);
// "lsf, pbs, slurm"
std::string names_of(std::span<const CompiledFile> files);

}  // namespace hvd::jobscripts
