#include "launcher/preflight/check.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>

namespace hvd::launcher::preflight {
namespace {

constexpr char separator = '&';

// Encodes a text. Letters, digits and a few signs are not changed. Other characters are, because a launcher between
// horovodrun and the probes may interpret them.
std::string escaped(std::string_view text) {
  std::string result;
  for (char each : text) {
    bool is_plain = (each >= 'a' && each <= 'z') || (each >= 'A' && each <= 'Z') || (each >= '0' && each <= '9') ||
                    std::string_view("_-./,:").find(each) != std::string_view::npos;
    char code[4];
    std::snprintf(code, sizeof code, "%%%02X", static_cast<unsigned>(static_cast<unsigned char>(each)));
    result += is_plain ? std::string(1, each) : std::string(code);
  }
  return result;
}

std::optional<char> character_of(std::string_view digits) {
  unsigned value = 0;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  if (error != std::errc{} || digits.size() != 2 || end != digits.data() + 2) return std::nullopt;
  return static_cast<char>(value);
}

std::string unescaped(std::string_view text) {
  std::string result;
  for (std::size_t at = 0; at < text.size(); ++at) {
    auto code = text[at] == '%' ? character_of(text.substr(at + 1, 2)) : std::nullopt;
    result += code ? *code : text[at];
    if (code) at += 2;
  }
  return result;
}

}  // namespace

std::string Facts::get(std::string_view name) const {
  auto found = facts_.find(name);
  return found == facts_.end() ? std::string() : found->second;
}

void Facts::add(const Facts& more) {
  for (const auto& [name, value] : more.facts_) facts_[name] = value;
}

std::string Facts::encoded() const {
  std::string word;
  for (const auto& [name, value] : facts_) {
    if (!word.empty()) word += separator;
    word += escaped(name) + "=" + escaped(value);
  }
  return word;
}

Facts Facts::decode(std::string_view word) {
  Facts facts;
  while (!word.empty()) {
    std::string_view one = word.substr(0, word.find(separator));
    word.remove_prefix(std::min(one.size() + 1, word.size()));
    std::size_t equals = one.find('=');
    if (equals != std::string_view::npos)
      facts.set(unescaped(one.substr(0, equals)), unescaped(one.substr(equals + 1)));
  }
  return facts;
}

std::vector<const Facts*> Allocation::first_of_each_node() const {
  std::vector<const Facts*> firsts;
  for (const Facts& probe : probes)
    if (probe.has("first")) firsts.push_back(&probe);
  return firsts;
}

std::vector<std::vector<const Facts*>> Allocation::by_node() const {
  std::vector<std::vector<const Facts*>> nodes;
  for (const Facts& probe : probes) {
    auto node = std::ranges::find_if(
        nodes, [&](const auto& members) { return members.front()->get("node") == probe.get("node"); });
    if (node == nodes.end()) nodes.push_back({&probe});
    else node->push_back(&probe);
  }
  return nodes;
}

std::span<const Check* const> checks() {
  static constexpr const Check* all[] = {&start_check,     &world_check,   &gpus_check,          &gpu_links_check,
                                         &binding_check,   &release_check, &python_check,        &libraries_check,
                                         &container_check, &names_check,   &shared_memory_check, &limits_check,
                                         &scratch_check,   &links_check,   &fabric_check,        &clock_check};
  return all;
}

Verdict equal_on_all_nodes(const Allocation& allocation, std::string_view fact, const std::string& what,
                           const std::string& missing, const std::string& remedy) {
  auto value_of = [&](const Facts& probe) { return probe.has(fact) ? probe.get(fact) : missing; };
  const auto firsts = allocation.first_of_each_node();
  if (firsts.empty()) return {"nobody could be asked", {}};
  auto count_of = [&](const Facts* probe) {
    return std::ranges::count_if(firsts, [&](const Facts* each) { return value_of(*each) == value_of(*probe); });
  };
  const std::string usual =
      value_of(**std::ranges::max_element(firsts, {}, [&](const Facts* probe) { return count_of(probe); }));
  Verdict verdict{what + ": " + usual, {}};
  for (const Facts* probe : firsts)
    if (value_of(*probe) != usual)
      verdict.findings.push_back(
          {Severity::fault, probe->get("host"), what + ": " + usual + ", as on most nodes", value_of(*probe), remedy});
  return verdict;
}

std::string short_name(std::string_view host) {
  bool is_address = host.find_first_not_of("0123456789.:") == std::string_view::npos;
  return std::string(is_address ? host : host.substr(0, host.find('.')));
}

}  // namespace hvd::launcher::preflight
