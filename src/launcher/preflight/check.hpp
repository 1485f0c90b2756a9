#pragma once
// A check of --preflight. One function gathers facts in the place of each rank. Another function judges the facts of
// all ranks. The two share only Facts, so a judge is a pure function. To add a check, add a file in checks/ and a row
// in check.cpp.
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/settings/environment.hpp"
#include "base/text/number.hpp"

namespace hvd::launcher::preflight {

// Texts with names. A fact that could not be found out is missing.
class Facts {
 public:
  Facts() = default;
  Facts(std::initializer_list<std::pair<const std::string, std::string>> facts) : facts_(facts) {}
  void set(std::string name, std::string value) { facts_[std::move(name)] = std::move(value); }
  void set(std::string name, long long value) { set(std::move(name), std::to_string(value)); }
  bool has(std::string_view name) const { return facts_.contains(name); }
  std::string get(std::string_view name) const;  // empty if there is no fact of this name
  std::optional<double> number(std::string_view name) const { return number_in<double>(get(name)); }
  void add(const Facts& more);  // a fact in `more` replaces one of the same name

  std::string encoded() const;  // returns the facts as a text without blanks
  static Facts decode(std::string_view word);

 private:
  std::map<std::string, std::string, std::less<>> facts_;
};

// The place of a rank, in which a probe runs.
struct Place {
  const Environment& environment;
  std::vector<std::string> hosts;  // the hosts of the whole job, as horovodrun knows them
  std::string python;              // the Python that the user's command names; empty: the first one along PATH
  bool is_first = true;            // true for the first probe on a node, which gathers the facts that are equal for the
                                   // node
};

// What horovodrun planned, and the facts of all probes. Every probe tells the facts "host" and "node". The first probe
// of a node also tells "first". A probe tells "has_looked" after all checks have gathered, and "is_through" at its end.
struct Allocation {
  int ranks = 0;                   // the number of ranks that were to be started
  std::vector<std::string> hosts;  // the hosts on which ranks were to be started
  std::string launcher;            // the launcher's name, for people
  std::string trouble;             // horovodrun's error messages if the start failed
  bool is_out_of_time = false;     // the time was over and the probes were ended
  std::vector<Facts> probes;       // ordered by rank, if the rank is known

  std::vector<const Facts*> first_of_each_node() const;
  std::vector<std::vector<const Facts*>> by_node() const;
};

enum class Severity { fault, note };  // despite a note the job can start; a fault would make it fail
struct Finding {
  Severity severity = Severity::fault;
  std::string host;  // host that the finding concerns; empty: the whole job
  std::string expected;
  std::string found;
  std::string remedy;
};
struct Verdict {
  std::string summary;  // a short text about what was found, if all is well
  std::vector<Finding> findings;
};

struct Check {
  const char* name;
  void (*gather)(const Place& place, Facts& facts);  // null if other checks gather the facts
  Verdict (*judge)(const Allocation& allocation);
};
std::span<const Check* const> checks();

// Compares a fact that should be equal on all nodes. There is a finding for each node whose value is not the most
// frequent one. A missing value counts as `missing`. `what` is the name of the fact for people.
Verdict equal_on_all_nodes(const Allocation& allocation, std::string_view fact, const std::string& what,
                           const std::string& missing, const std::string& remedy);
// Returns "n1" for "n1.example.org".
std::string short_name(std::string_view host);

extern const Check start_check, world_check, gpus_check, gpu_links_check, binding_check, release_check, python_check,
    libraries_check, shared_memory_check, limits_check, links_check, fabric_check, clock_check, scratch_check,
    names_check, container_check;

}  // namespace hvd::launcher::preflight
