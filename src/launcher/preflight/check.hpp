#pragma once
// One check of --preflight: what it asks on the place of a rank, and what it makes of the answers of all ranks. The two
// halves meet in Facts alone, so a judge is a pure function. To add a check, add a file in checks/ and a row in
// check.cpp.
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/environment.hpp"
#include "base/number.hpp"

namespace hvd::launcher::preflight {

// Named texts; what could not be found out is not there.
class Facts {
 public:
  Facts() = default;
  Facts(std::initializer_list<std::pair<const std::string, std::string>> facts) : facts_(facts) {}
  void set(std::string name, std::string value) { facts_[std::move(name)] = std::move(value); }
  void set(std::string name, long long value) { set(std::move(name), std::to_string(value)); }
  bool has(std::string_view name) const { return facts_.contains(name); }
  std::string get(std::string_view name) const;  // empty if it is not there
  std::optional<double> number(std::string_view name) const { return number_in<double>(get(name)); }
  void add(const Facts& more);  // which win

  std::string encoded() const;  // in one word
  static Facts decode(std::string_view word);

 private:
  std::map<std::string, std::string, std::less<>> facts_;
};

// Where a probe stands.
struct Place {
  const Environment& environment;
  std::vector<std::string> hosts;  // of the whole job, as horovodrun knows them
  std::string python;              // that the user's command names; empty: the one along PATH
  bool is_first = true;            // of the probes on this node: asks what is equal for all of them
};

// What all probes said, and what horovodrun planned. A probe always tells "host" and "node", and if it is the first
// one of its node "first"; "has_looked" when all checks have gathered, "is_through" at its end.
struct Allocation {
  int ranks = 0;                   // that were to be started
  std::vector<std::string> hosts;  // that were to get some
  std::string launcher;            // for people
  std::string trouble;             // what horovodrun said of a start that failed
  bool is_out_of_time = false;     // the probes had to be ended
  std::vector<Facts> probes;       // by rank, as far as it is known

  std::vector<const Facts*> first_of_each_node() const;
  std::vector<std::vector<const Facts*>> by_node() const;
};

enum class Severity { fault, note };  // a note lets the job start
struct Finding {
  Severity severity = Severity::fault;
  std::string host;  // empty: the whole job
  std::string expected;
  std::string found;
  std::string remedy;
};
struct Verdict {
  std::string summary;  // what was seen where nothing was wrong
  std::vector<Finding> findings;
};

struct Check {
  const char* name;
  void (*gather)(const Place& place, Facts& facts);  // null: others gather it
  Verdict (*judge)(const Allocation& allocation);
};
std::span<const Check* const> checks();

// What should be equal on all nodes: a finding for each node whose value is not the most frequent one. A value that is
// missing counts as `missing`; `what` is for people.
Verdict equal_on_all_nodes(const Allocation& allocation, std::string_view fact, const std::string& what,
                           const std::string& missing, const std::string& remedy);
// "8.0 GiB", "64 KiB"
std::string bytes_text(double bytes);
// "n1" of "n1.example.org"
std::string short_name(std::string_view host);
// "3 nodes", "1 node"
std::string counted(std::size_t number, const char* what);

extern const Check start_check, world_check, gpus_check, binding_check, release_check, python_check, libraries_check,
    shared_memory_check, limits_check, links_check, fabric_check, clock_check, scratch_check, names_check,
    container_check;

}  // namespace hvd::launcher::preflight
