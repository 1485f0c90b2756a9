#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <thread>

#include "bootstrap/pmi/connection.hpp"
#include "bootstrap/pmi/values.hpp"

namespace hvd::bootstrap::pmi {
namespace {

Deadline soon() {
  return Deadline::after(std::chrono::seconds(20));
}
Deadline at_once() {
  return Deadline::after(std::chrono::milliseconds(20));
}

// A PMI-1 server for a job of one rank. It runs on its own thread.
class Server {
 public:
  explicit Server(std::string kvsname = "kvs_1", std::string maxes = "kvsname_max=256 keylen_max=64 vallen_max=1024")
      : kvsname_(std::move(kvsname)), maxes_(std::move(maxes)) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    mine_ = ends[0];
    theirs_ = ends[1];
    thread_ = std::thread([this] { serve(); });
  }
  ~Server() {
    close_their_end();
    ::shutdown(mine_, SHUT_RDWR);
    thread_.join();
    ::close(mine_);
  }
  void close_their_end() {
    if (theirs_ >= 0) ::close(theirs_);
    theirs_ = -1;
  }
  Environment environment() const {
    return Environment({{"PMI_FD", std::to_string(theirs_)}, {"PMI_RANK", "0"}, {"PMI_SIZE", "1"}});
  }
  int their_end() const { return theirs_; }
  void say_nothing_to(std::string command) {
    std::lock_guard lock(mutex_);
    mute_ = std::move(command);
  }
  // Call this only after the connection was destroyed.
  int count_of(const std::string& command) {
    std::lock_guard lock(mutex_);
    return count_[command];
  }
  std::size_t longest_line() {
    std::lock_guard lock(mutex_);
    return longest_;
  }

 private:
  void serve() {
    std::string text;
    char bytes[4096];
    for (ssize_t got = ::recv(mine_, bytes, sizeof bytes, 0); got > 0; got = ::recv(mine_, bytes, sizeof bytes, 0)) {
      text.append(bytes, static_cast<std::size_t>(got));
      for (std::size_t end = text.find('\n'); end != std::string::npos; end = text.find('\n')) {
        std::string line = text.substr(0, end);
        text.erase(0, end + 1);
        std::lock_guard lock(mutex_);
        longest_ = std::max(longest_, line.size());
        std::string answer = answer_to(line) + "\n";
        if (answer.size() > 1) ::send(mine_, answer.data(), answer.size(), MSG_NOSIGNAL);
      }
    }
  }
  std::string answer_to(const std::string& line) {
    in_spawn_ = (in_spawn_ || line == "mcmd=spawn") && line != "endcmd";
    if (in_spawn_) return "";
    if (line == "endcmd") return "cmd=spawn_result rc=0";
    std::string command(value_in(line, "cmd"));
    ++count_[command];
    if (command == mute_ || command == "abort") return "";
    if (command == "init") return "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1";
    if (command == "get_maxes") return "cmd=maxes rc=0 " + maxes_;
    if (command == "get_my_kvsname") return "cmd=my_kvsname rc=0 kvsname=" + kvsname_;
    if (command == "barrier_in") return "cmd=barrier_out rc=0";
    if (command == "finalize") return "cmd=finalize_ack rc=0";
    std::string key(value_in(line, "key"));
    if (command == "put") {
      values_[key] = value_in(line, "value");
      return "cmd=put_result rc=0";
    }
    if (command == "get" && values_.contains(key)) return "cmd=get_result rc=0 value=" + values_[key];
    if (command == "get") return "cmd=get_result rc=-1 msg=no";
    return "cmd=" + command + "_result rc=0";
  }

  std::string kvsname_, maxes_, mute_;
  std::mutex mutex_;
  bool in_spawn_ = false;
  int mine_ = -1, theirs_ = -1;
  std::map<std::string, std::string> values_;
  std::map<std::string, int> count_;
  std::size_t longest_ = 0;
  std::thread thread_;
};

std::unique_ptr<Connection> connected(const Server& server, bool mpi_was_first = false) {
  auto connection = Connection::open(server.environment(), mpi_was_first, soon());
  EXPECT_TRUE(connection) << connection.error().message;
  return connection ? std::move(*connection) : nullptr;
}

// Sends one line as an MPI library does on its PMI_FD, and returns the answer.
std::string asked_by_library(int descriptor, const std::string& line) {
  EXPECT_EQ(::send(descriptor, line.data(), line.size(), MSG_NOSIGNAL), static_cast<ssize_t>(line.size()));
  std::string answer;
  char letter = 0;
  while (::recv(descriptor, &letter, 1, 0) == 1 && letter != '\n') answer += letter;
  return answer;
}

TEST(PmiLine, is_read_word_by_word_and_its_value_to_the_end) {
  EXPECT_EQ(value_in("cmd=get_result rc=-1 msg=key_x_not_found value=unknown", "rc"), "-1");
  EXPECT_EQ(value_in("cmd=get_result rc=0 value=a=b c=d", "value"), "a=b c=d");
  EXPECT_EQ(value_in("cmd=get_result rc=0 value=a rc=7", "rc"), "0");
  EXPECT_EQ(value_in("cmd=get_result value=a rc=7", "rc"), "") << "part of the value";
  EXPECT_EQ(value_in("xcmd=1 cmd=2", "cmd"), "2");
  EXPECT_EQ(value_in("", "cmd"), "");
  EXPECT_EQ(value_in("cmd", "cmd"), "");
}

TEST(PmiValues, come_back_as_they_were_whatever_their_bytes_and_length) {
  for (std::size_t longest : {32u, 100u, 873u}) {
    for (std::size_t length : {0u, 1u, 2u, 3u, 15u, 16u, 17u, 300u, 5000u}) {
      Buffer value;
      for (std::size_t i = 0; i < length; ++i) value.push_back(static_cast<std::byte>(i * 7 + length));
      auto pieces = pieces_of(value, longest);
      for (const std::string& piece : pieces) {
        EXPECT_LE(piece.size(), longest);
        EXPECT_EQ(piece.find_first_of(" =\n"), std::string::npos);
      }
      EXPECT_EQ(number_of_pieces(pieces[0]), pieces.size());
      EXPECT_EQ(value_of(pieces), value) << longest << " " << length;
    }
  }
  EXPECT_FALSE(number_of_pieces("AAAA"));
  EXPECT_FALSE(number_of_pieces("0:"));
  EXPECT_FALSE(value_of({"1:A*"}));
}

TEST(PmiValues, have_keys_that_servers_take_and_that_tell_ranks_apart) {
  EXPECT_EQ(key_of(Rank{3}, "hvd.meet.0", 1), "hvd3.hvd.meet.0.1");
  std::string odd(200, 'x');
  for (std::string key : {std::string("a b"), std::string("a=b"), odd}) {
    EXPECT_LE(key_of(Rank{1 << 24}, key, 999).size(), 63u);
    EXPECT_EQ(key_of(Rank{0}, key, 0).find_first_of(" ="), std::string::npos);
  }
  EXPECT_NE(key_of(Rank{0}, "a b", 0), key_of(Rank{0}, "a=b", 0));
}

TEST(PmiConnection, stores_and_fetches_and_leaves_in_order) {
  Server server;
  {
    auto connection = connected(server);
    EXPECT_EQ(connection->key_value_space(), "kvs_1");
    ASSERT_TRUE(connection->put("key", std::string(connection->longest_value(), 'v'), soon()));
    ASSERT_TRUE(connection->barrier(soon()));
    EXPECT_EQ(connection->get("key", soon())->size(), connection->longest_value());
    EXPECT_FALSE(connection->get("other", soon()));
  }
  EXPECT_EQ(server.count_of("init"), 1);
  EXPECT_EQ(server.count_of("finalize"), 1);
  EXPECT_LT(server.longest_line(), 1024u);
}

TEST(PmiConnection, keeps_lines_short_for_a_server_with_a_long_name) {
  Server server(std::string(250, 'k'));
  auto connection = connected(server);
  ASSERT_TRUE(connection->put(std::string(63, 'y'), std::string(connection->longest_value(), 'v'), soon()));
  EXPECT_LT(server.longest_line(), 1024u);
}

TEST(PmiConnection, lets_an_mpi_library_start_and_end_behind_it) {
  Server server;
  int descriptor = server.their_end();
  {
    auto connection = connected(server);
    EXPECT_EQ(asked_by_library(descriptor, "cmd=init pmi_version=1 pmi_subversion=1\n"),
              "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0");
    EXPECT_EQ(asked_by_library(descriptor, "cmd=get_my_kvsname\n"), "cmd=my_kvsname rc=0 kvsname=kvs_1");
    EXPECT_EQ(asked_by_library(descriptor, "cmd=put kvsname=kvs_1 key=mpi value=a=b\n"), "cmd=put_result rc=0");
    EXPECT_EQ(*connection->get("mpi", soon()), "a=b");
    EXPECT_EQ(asked_by_library(descriptor, "mcmd=spawn\nnprocs=1\nendcmd\n"), "cmd=spawn_result rc=0");
    EXPECT_EQ(asked_by_library(descriptor, "cmd=finalize\n"), "cmd=finalize_ack rc=0");
    ::shutdown(descriptor, SHUT_RDWR);
    EXPECT_TRUE(connection->barrier(soon())) << "we stay when the library leaves";
  }
  EXPECT_EQ(server.count_of("init"), 1) << "srun ends the job at a second one";
  EXPECT_EQ(server.count_of("finalize"), 1);
}

TEST(PmiConnection, sends_neither_init_nor_finalize_where_an_mpi_library_did) {
  Server server;
  {
    auto connection = connected(server, true);
    EXPECT_TRUE(connection->barrier(soon()));
  }
  EXPECT_EQ(server.count_of("init"), 0);
  EXPECT_EQ(server.count_of("finalize"), 0);
}

TEST(PmiConnection, ends_by_its_deadline_and_stays_failed) {
  Server server;
  server.say_nothing_to("barrier_in");
  auto connection = connected(server);
  auto late = connection->barrier(at_once());
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, ErrorCode::timeout);
  EXPECT_FALSE(connection->barrier(soon()));
  EXPECT_FALSE(connection->get("key", soon())) << "its answer could be the barrier's";
}

TEST(PmiConnection, refuses_what_is_no_server) {
  EXPECT_EQ(Connection::open(Environment({{"PMI_FD", "99999"}, {"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}), false, soon())
                .error()
                .code,
            ErrorCode::unsupported);
  EXPECT_FALSE(Connection::open(Environment({{"PMI_PORT", "nohost"}, {"PMI_ID", "0"}}), false, soon()));
  Server tiny("kvs", "kvsname_max=16 keylen_max=16 vallen_max=16");
  EXPECT_EQ(Connection::open(tiny.environment(), false, soon()).error().code, ErrorCode::unsupported);
  Server other;
  Environment wrong = other.environment();
  wrong.set("PMI_RANK", "1");
  EXPECT_EQ(Connection::open(wrong, false, soon()).error().code, ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace hvd::bootstrap::pmi
