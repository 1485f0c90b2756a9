// Measures how long the ranks of a job take to meet, by bootstrap. One light process per rank does only what hvd_init()
// does until it knows all other ranks. With rendezvous there is one process per node: the node's first rank, which has
// the cards of the other ranks already. The cost of collecting those cards arises on each node; here two cores would
// have to pay it for all nodes. The ranks are served as in a job: by one thread, with the launcher's own store.
//
//   hvd_meeting_time [--ranks 16,256,1024,4096] [--ways environment,rendezvous,slurm,values] [--per-node 4] [--rounds
//   3]
//
// A row has the time from the word "go" until the last rank has met all others, with all ranks on the few cores of this
// machine. It also has two processor times: that of the thread which serves all ranks (of rank 0 if nobody serves), and
// the average one of a rank. If every rank has a core of its own, a start takes about as long as these two together.
// All values are fitted (a·n + b·n²) to the last three sizes, and given for 6000 and 27 648 ranks.
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "base/text/comma_list.hpp"
#include "bootstrap/meeting/meeting.hpp"
#include "bootstrap/selection/selection.hpp"
#include "bootstrap/store/local_store.hpp"
#include "bootstrap/store/tcp_client.hpp"
#include "bootstrap/store/tcp_server.hpp"

namespace {

using namespace hvd;
using namespace hvd::bootstrap;

double now_ms() {
  return std::chrono::duration<double, std::milli>(Clock::now().time_since_epoch()).count();
}

double used_ms(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) / 1e6;
}

[[noreturn]] void fail(const std::string& why) {
  std::fprintf(stderr, "hvd_meeting_time: %s\n", why.c_str());
  std::_Exit(1);
}

struct Options {
  std::vector<int> ranks{16, 256, 1024, 4096};
  std::vector<std::string> ways{"environment", "rendezvous", "slurm", "values"};
  int per_node = 4;
  int rounds = 3;
};

struct Sample {
  double ms = 0;         // until the last rank has met all others
  double server_ms = 0;  // of the serving thread, or of rank 0
  double rank_ms = 0;    // average of the ranks
};

// Memory that all processes of a round share.
struct Shared {
  std::atomic<int> ready{0};
  std::atomic<int> done{0};
  std::atomic<int> failed{0};
  std::atomic<double> last_ms{0};
  std::atomic<double> first_rank_ms{0};
  std::atomic<double> all_ranks_ms{0};
};

// The environment of the ranks, and who serves them.
struct Way {
  // null if the ranks meet by what the environment tells:
  std::function<Status(int node, Deadline deadline)> meet_as_node;
  std::function<Environment(int rank)> environment;
  std::function<void()> serve;  // serves what can be served now; null if nobody serves
  int descriptor = -1;
  std::shared_ptr<void> keep;
  Config config;
};

std::string slurm_list(int first, int count) {
  std::string list;
  for (int i = 0; i < count; ++i) list += (i == 0 ? "" : ",") + std::to_string(first + i);
  return list;
}

Member member(const Environment& environment, int rank, int per_node) {
  Member me = introduce_myself(environment, "@" + std::to_string(10000 + rank));
  std::string node = std::to_string(rank / per_node);
  me.host = "node" + node;
  me.node += "." + node;
  me.knobs = Config().equal_knobs();
  std::string port = std::to_string(30000 + rank % 20000);
  me.endpoints = "10.1.2." + node + ":" + port + " 192.168.7." + node + ":" + port;
  return me;
}

// Returns a rank's card as a meeting makes it.
Card card_of(const Member& member) {
  return {member.host, member.node, member.release, member.knobs, member.endpoints, member.address};
}

Environment in_job(int rank, int size) {
  return Environment({{"HOROVOD_RANK", std::to_string(rank)}, {"HOROVOD_SIZE", std::to_string(size)}});
}

Way way_of(const std::string& name, int size, const Options& options, const std::string& folder) {
  Way way;
  int per_node = options.per_node;
  way.config.bootstrap = name;
  way.config.start_timeout_s = 300;
  if (name == "environment") {
    auto server = LocalStoreServer::open({"job", size, nullptr});
    if (!server) fail(server.error().message);
    std::shared_ptr<LocalStoreServer> store = std::move(*server);
    way.environment = [=](int rank) {
      Environment environment = in_job(rank, size);
      for (const auto& [variable, value] : store->variables()) environment.set(variable, value);
      return environment;
    };
    way.serve = [=] { store->serve(); };
    way.descriptor = store->descriptor();
  } else if (name == "rendezvous") {
    TcpStoreServer::Options store_options;
    store_options.job = "job";
    store_options.size = size;
    constexpr const char* secret = "what only the ranks of this job know";
    store_options.secret = secret;
    store_options.interfaces = {"lo"};
    auto server = TcpStoreServer::open(store_options);
    if (!server) fail(server.error().message);
    std::shared_ptr<TcpStoreServer> store = std::move(*server);
    std::string addresses = store->addresses(), port = std::to_string(store->port());
    way.meet_as_node = [=](int node, Deadline deadline) -> Status {
      std::vector<BroughtCard> cards;
      for (int rank = node * per_node; rank < std::min((node + 1) * per_node, size); ++rank)
        cards.emplace_back(Rank{rank}, encode(card_of(member(Environment(), rank, per_node))));
      auto client = enter_tcp_store(addresses, port, secret, cards.front().first, size, deadline);
      if (!client) return std::move(client.error());
      auto table = (*client)->exchange("card", cards, deadline);
      if (!table) return std::move(table.error());
      auto all = Cards::decode(std::move(*table), size);
      if (!all) return std::move(all.error());
      std::vector<Member> members;
      for (int rank = 0; rank < size; ++rank) {
        const auto& texts = all->of(Rank{rank}).texts;
        members.push_back(
            {std::string(texts[0]), std::string(texts[1]), rank, std::string(texts[5]), std::string(texts[4])});
      }
      return {};
    };
    way.serve = [=] { store->serve(); };
    way.descriptor = store->descriptor();
  } else {
    way.config.shared_dir = folder;
    way.environment = [=](int rank) {
      int first = rank - rank % per_node;
      return Environment({{"SLURM_JOB_ID", std::to_string(::getppid())},
                          {"SLURM_STEP_ID", "0"},
                          {"SLURM_PROCID", std::to_string(rank)},
                          {"SLURM_LOCALID", std::to_string(rank % per_node)},
                          {"SLURM_NODEID", std::to_string(rank / per_node)},
                          {"SLURM_GTIDS", slurm_list(first, std::min(per_node, size - first))},
                          {"SLURM_STEP_NUM_TASKS", std::to_string(size)},
                          {"SLURM_STEP_NUM_NODES", std::to_string((size + per_node - 1) / per_node)}});
    };
  }
  return way;
}

// The descriptor `go` reaches its end when all may begin.
void be_rank(const Way& way, int rank, int per_node, int round, Shared& shared, int go) {
  shared.ready.fetch_add(1);
  char none = 0;
  (void)!::read(go, &none, 1);
  double before = used_ms(CLOCK_PROCESS_CPUTIME_ID);
  Deadline deadline = Deadline::after(std::chrono::seconds(300));
  Status met;
  std::unique_ptr<Bootstrap> bootstrap;
  if (way.meet_as_node) {
    met = way.meet_as_node(rank, deadline);
  } else {
    Environment environment = way.environment(rank);
    std::vector<Notice> notices;
    auto chosen = choose(environment, way.config, notices);
    if (!chosen) fail(chosen.error().message);
    bootstrap = std::move(chosen->bootstrap);
    auto world = meet(*bootstrap, chosen->identity, static_cast<std::uint32_t>(round),
                      member(environment, rank, per_node), deadline);
    if (!world) met = std::move(world.error());
  }
  if (met) {
    double end = now_ms(), used = used_ms(CLOCK_PROCESS_CPUTIME_ID) - before;
    if (rank == 0) shared.first_rank_ms = used;
    for (double sum = shared.all_ranks_ms; !shared.all_ranks_ms.compare_exchange_weak(sum, sum + used);) {
    }
    if (bootstrap) bootstrap->tidy_up();
    for (double last = shared.last_ms; last < end && !shared.last_ms.compare_exchange_weak(last, end);) {
    }
  }
  if (!met && shared.failed.fetch_add(1) == 0) std::fprintf(stderr, "rank %d: %s\n", rank, met.error().message.c_str());
  shared.done.fetch_add(1);
}

Sample measure(const std::string& name, int size, const Options& options, int round, const std::string& folder) {
  void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail("no shared memory");
  auto& shared = *new (memory) Shared;
  Way way = way_of(name, size, options, folder);
  int go[2];
  if (::pipe(go) != 0) fail("no pipe");
  int count = way.meet_as_node ? (size + options.per_node - 1) / options.per_node : size;
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < count; ++rank) {
    pid_t pid = ::fork();
    if (pid < 0) fail("no process for rank " + std::to_string(rank) + " (ulimit -u)");
    if (pid == 0) {
      ::close(go[1]);
      be_rank(way, rank, options.per_node, round, shared, go[0]);
      std::_Exit(0);
    }
    ranks.push_back(pid);
  }
  while (shared.ready < count) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  double begin = now_ms(), cpu = used_ms(CLOCK_THREAD_CPUTIME_ID);
  ::close(go[1]);
  while (shared.done < count) {
    pollfd entry{way.descriptor, POLLIN, 0};
    ::poll(&entry, 1, 1);
    if (way.serve) way.serve();
  }
  Sample sample{shared.last_ms - begin,
                way.serve ? used_ms(CLOCK_THREAD_CPUTIME_ID) - cpu : shared.first_rank_ms.load(),
                shared.all_ranks_ms / count};
  for (pid_t pid : ranks) ::waitpid(pid, nullptr, 0);
  if (shared.failed > 0) fail(std::to_string(shared.failed) + " of " + std::to_string(count) + " failed");
  ::close(go[0]);
  ::munmap(memory, sizeof(Shared));
  return sample;
}

// The way of a launcher that has nothing better: a put, a fence, and a get of every rank's card from a server on the
// node. There is one node, and all its ranks ask one thread.
Sample measure_values(int size, const Options& options, int round) {
  auto server = LocalStoreServer::open({"job", size, nullptr});
  if (!server) fail(server.error().message);
  std::atomic<bool> stop{false};
  std::atomic<double> used{0};
  std::thread serving([&] {
    while (!stop) {
      pollfd entry{(*server)->descriptor(), POLLIN, 0};
      ::poll(&entry, 1, 1);
      (*server)->serve();
      used = used_ms(CLOCK_THREAD_CPUTIME_ID);
    }
  });
  std::string address = (*server)->variables()[0].second, secret = (*server)->variables()[1].second;
  std::string key = "card" + std::to_string(round);
  Buffer card(600, std::byte{7});
  std::vector<std::unique_ptr<StoreClient>> clients;
  for (int rank = 0; rank < size; ++rank) {
    auto client = LocalStoreClient::join(address, secret, Rank{rank}, size, Deadline::after(std::chrono::seconds(60)));
    if (!client || !(*client)->put(key, card, Deadline::after(std::chrono::seconds(60)))) fail("a put failed");
    clients.push_back(std::move(*client));
  }
  double begin = now_ms(), cpu = used;
  std::vector<std::thread> node;
  for (int rank = 0; rank < std::min(options.per_node, size); ++rank)
    node.emplace_back([&, rank] {
      for (int from = 0; from < size; ++from)
        if (!clients[static_cast<std::size_t>(rank)]->get(Rank{from}, key, Deadline::after(std::chrono::seconds(60))))
          fail("a get failed");
    });
  for (std::thread& rank : node) rank.join();
  Sample sample{now_ms() - begin, used - cpu, 0};
  stop = true;
  serving.join();
  return sample;
}

// Fits a·n + b·n² by least squares relative to the values.
double extrapolate(const std::map<int, double>& values, int to) {
  double s11 = 0, s12 = 0, s22 = 0, t1 = 0, t2 = 0;
  int points = 0;
  for (auto at = values.rbegin(); at != values.rend() && points < 3; ++at, ++points) {
    double x = at->first / at->second, y = x * at->first;
    s11 += x * x, s12 += x * y, s22 += y * y, t1 += x, t2 += y;
  }
  double det = s11 * s22 - s12 * s12;
  double a = (t1 * s22 - t2 * s12) / det, b = (t2 * s11 - t1 * s12) / det;
  if (b < 0) a = t1 / s11, b = 0;
  if (a < 0) a = 0, b = t2 / s22;
  return a * to + b * to * static_cast<double>(to);
}

std::string text_of(double ms) {
  char text[32];
  std::snprintf(text, sizeof text, ms < 9.95 ? "%.1f ms" : ms < 9995 ? "%.0f ms" : "%.1f s", ms < 9995 ? ms : ms / 1e3);
  return text;
}

void print_row(const std::string& name, const Options& options, const std::map<int, double>& values) {
  std::string row = "| " + name + " |";
  for (int ranks : options.ranks)
    row += " " + (values.contains(ranks) ? text_of(values.at(ranks)) : std::string("–")) + " |";
  for (int ranks : {6000, 27648}) row += " " + (values.size() > 2 ? text_of(extrapolate(values, ranks)) : "–") + " |";
  std::printf("%s\n", row.c_str());
  std::fflush(stdout);
}

void measure_way(const std::string& name, const Options& options, const std::string& folder) {
  std::map<int, double> wall, server, rank;
  for (int size : options.ranks) {
    if (name == "environment" && size > 1024) continue;  // this way is for the ranks of one host
    std::vector<Sample> samples;
    for (int round = 0; round < options.rounds; ++round)
      samples.push_back(name == "values" ? measure_values(size, options, round)
                                         : measure(name, size, options, round, folder));
    auto median = [&](double Sample::*part) {
      std::vector<double> all;
      for (const Sample& sample : samples) all.push_back(sample.*part);
      std::sort(all.begin(), all.end());
      return all[all.size() / 2];
    };
    wall[size] = median(&Sample::ms);
    server[size] = median(&Sample::server_ms);
    rank[size] = median(&Sample::rank_ms);
  }
  print_row(name + (name == "values"       ? ", of one node"
                    : name == "rendezvous" ? ", all nodes here"
                                           : ", all ranks here"),
            options, wall);
  print_row(name + (name == "slurm" ? ", rank 0's core" : ", the serving thread's core"), options, server);
  if (name != "values") print_row(name + ", the core of a rank", options, rank);
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    std::string flag = argv[i];
    if (flag == "--ranks") {
      options.ranks.clear();
      for (const std::string& item : items_of(argv[i + 1])) options.ranks.push_back(std::stoi(item));
    } else if (flag == "--ways") {
      options.ways = items_of(argv[i + 1]);
    } else if (flag == "--per-node") {
      options.per_node = std::stoi(argv[i + 1]);
    } else if (flag == "--rounds") {
      options.rounds = std::stoi(argv[i + 1]);
    } else {
      fail("unknown flag " + flag);
    }
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  Options options = parse(argc, argv);
  char folder[] = "/tmp/hvd_meeting_time.XXXXXX";
  if (::mkdtemp(folder) == nullptr) fail("no folder in /tmp");
  std::string head = "| by |", line = "|--|";
  for (int ranks : options.ranks) head += " " + std::to_string(ranks) + " ranks |", line += "--:|";
  std::printf("%s 6000 (fitted) | 27648 (fitted) |\n%s--:|--:|\n", head.c_str(), line.c_str());
  for (const std::string& way : options.ways) measure_way(way, options, folder);
  ::rmdir(folder);
  return 0;
}
