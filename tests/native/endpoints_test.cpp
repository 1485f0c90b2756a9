#include "native/posix/sockets/endpoints.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <string>

#include "native/posix/sockets/tcp_socket.hpp"

namespace hvd::posix {
namespace {

TcpAddress address(const char* text) {
  return TcpAddress::parse(std::string(text).find(':') == std::string::npos ? std::string(text) + ":0"
                                                                            : "[" + std::string(text) + "]:0")
      .value();
}

// The interfaces of a compute node: a management network, a fast network, bridges of containers, an unplugged cable.
std::vector<Interface> a_node() {
  auto make = [](const char* name, bool is_running, std::vector<InterfaceAddress> addresses) {
    Interface interface;
    interface.name = name;
    interface.is_running = is_running;
    interface.is_loopback = interface.name == "lo";
    interface.is_bridge = interface.name.starts_with("docker") || interface.name.starts_with("br");
    interface.addresses = std::move(addresses);
    return interface;
  };
  return {make("lo", true, {{address("127.0.0.1"), 8}, {address("::1"), 128}}),
          make("docker0", false, {{address("172.17.0.1"), 16}}),
          make("br-1", true, {{address("172.18.0.1"), 16}}),
          make("eth0", true, {{address("10.0.0.3"), 24}, {address("fd00::3"), 64}, {address("fe80::1"), 64}}),
          make("eth1", false, {{address("10.9.0.3"), 24}}),
          make("ib0", true, {{address("10.1.0.3"), 16}}),
          make("usb0", true, {{address("fe80::2"), 64}})};
}

std::string hosts(const std::vector<InterfaceAddress>& addresses) {
  std::string text;
  for (const auto& entry : addresses) text += (text.empty() ? "" : " ") + entry.address.host();
  return text;
}

TEST(Endpoints, are_all_addresses_that_are_up_but_loopback_and_bridges_come_last) {
  auto usable = usable_addresses(a_node(), "");
  ASSERT_TRUE(usable);
  EXPECT_EQ(hosts(*usable), "10.0.0.3 fd00::3 10.1.0.3 172.18.0.1");
}

TEST(Endpoints, are_loopbacks_where_there_is_nothing_else) {
  auto node = a_node();
  auto usable = usable_addresses({node[0], node[1], node[4], node[6]}, "");
  ASSERT_TRUE(usable);
  EXPECT_EQ(hosts(*usable), "127.0.0.1 ::1");
}

TEST(Endpoints, of_named_interfaces_are_theirs_alone) {
  EXPECT_EQ(hosts(usable_addresses(a_node(), "ib0").value()), "10.1.0.3");
  EXPECT_EQ(hosts(usable_addresses(a_node(), "ib0, eth0,").value()), "10.1.0.3 10.0.0.3 fd00::3");
  EXPECT_EQ(hosts(usable_addresses(a_node(), "lo").value()), "127.0.0.1 ::1");
}

TEST(Endpoints, of_an_interface_that_cannot_be_used_are_refused_with_what_there_is) {
  struct Row {
    const char *wanted, *problem;
  };
  for (auto [wanted, problem] : {Row{"eth7", "eth7 does not exist"}, Row{"ib0,eth1", "eth1 is down"},
                                 Row{"usb0", "usb0 has no address that peers could use"}}) {
    auto usable = usable_addresses(a_node(), wanted);
    ASSERT_FALSE(usable) << wanted;
    const std::string& message = usable.error().message;
    EXPECT_EQ(usable.error().code, ErrorCode::invalid_argument);
    for (const char* part : {"HOROVOD_GLOO_IFACE=", problem, "eth0 (10.0.0.3, fd00::3)", "eth1 (10.9.0.3, down)",
                             "usb0 (no address)", "correct it or unset it"})
      EXPECT_NE(message.find(part), std::string::npos) << message << "\nlacks: " << part;
  }
}

TEST(Endpoints, without_any_interface_are_an_error) {
  auto usable = usable_addresses({}, "");
  ASSERT_FALSE(usable);
  EXPECT_EQ(usable.error().code, ErrorCode::system);
}

TEST(Endpoints, are_read_as_they_are_written_and_nonsense_is_left_out) {
  std::string read;
  for (const TcpAddress& each : parse_endpoints(
           " 10.0.0.3:41234  [fd00::3]:7 nonsense 1.2.3.4 1.2.3.4:65536 1.2.3:5 [::1] [1.2.3.4]:5 [::1]:0x1 "))
    read += each.text() + " ";
  EXPECT_EQ(read, "10.0.0.3:41234 [fd00::3]:7 ");
  EXPECT_TRUE(parse_endpoints("").empty());
}

TEST(Endpoints, of_a_subnet_of_mine_are_tried_first_and_addresses_that_are_mine_too_last) {
  auto theirs = parse_endpoints("172.18.0.1:1 10.200.0.1:2 169.254.0.9:3 [fd00::9]:4 10.1.7.9:5");
  std::string order;
  for (const TcpAddress& each : by_nearness(theirs, usable_addresses(a_node(), "").value())) order += each.text() + " ";
  EXPECT_EQ(order, "[fd00::9]:4 10.1.7.9:5 10.200.0.1:2 169.254.0.9:3 172.18.0.1:1 ");
}

TEST(TcpAddress, compares_prefixes_bit_by_bit) {
  EXPECT_TRUE(address("10.0.0.1").shares_prefix(address("10.0.0.2"), 30));
  EXPECT_FALSE(address("10.0.0.1").shares_prefix(address("10.0.0.2"), 31));
  EXPECT_TRUE(address("10.0.0.1").shares_prefix(address("11.0.0.2"), 0));
  EXPECT_FALSE(address("10.0.0.1").shares_prefix(address("::1"), 0));
  EXPECT_TRUE(address("fd00::1").shares_prefix(address("fd00::2"), 64));
  EXPECT_FALSE(address("fd00::1").is_same_host(address("fd00::2")));
}

TEST(Interfaces, of_this_host_have_loopback_among_them) {
  auto list = posix::interfaces();
  ASSERT_TRUE(list);
  bool has_loopback = false;
  for (const Interface& each : *list)
    for (const auto& entry : each.addresses)
      has_loopback |= each.is_loopback && entry.address.host() == "127.0.0.1" && entry.prefix_bits == 8;
  EXPECT_TRUE(has_loopback);
}

TEST(Endpoints, that_were_listened_on_take_connections_at_ports_of_the_range) {
  auto sockets = listen_for_peers("lo", {});
  ASSERT_TRUE(sockets) << sockets.error().message;
  auto endpoints = parse_endpoints(sockets->endpoints);
  ASSERT_EQ(endpoints.size(), sockets->sockets.size());
  ASSERT_FALSE(endpoints.empty());
  // The port is taken now, and it is the only one of this range.
  const PortRange one{endpoints[0].port(), endpoints[0].port()};
  auto none = listen_for_peers("lo", one);
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("no port of it is free"), std::string::npos) << none.error().message;
}

TEST(TcpSocket, is_not_lost_by_one_question_without_an_answer) {
  FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  auto option = [&](int name) {
    int value = 0;
    socklen_t size = sizeof value;
    EXPECT_EQ(::getsockopt(socket.get(), IPPROTO_TCP, name, &value, &size), 0);
    return value;
  };
  constexpr int longest = (1 << 20) * 1000;  // of HOROVOD_PEER_TIMEOUT
  for (auto [asked, kept] :
       {std::pair{1000, 3000}, {2500, 3000}, {4000, 4000}, {10000, 10000}, {82000000, 82000000}, {longest, longest}}) {
    ASSERT_TRUE(prepare_connection(socket.get(), std::chrono::milliseconds(asked)));
    EXPECT_EQ(option(TCP_USER_TIMEOUT), kept);
    EXPECT_LT((option(TCP_KEEPIDLE) + option(TCP_KEEPINTVL)) * 1000, kept) << "the second question comes before";
  }
  set_patience_with_unanswered_data(socket.get(), std::chrono::milliseconds(1));
  EXPECT_EQ(option(TCP_USER_TIMEOUT), 3000);
  set_patience_with_unanswered_data(socket.get(), std::chrono::milliseconds(0));
  EXPECT_EQ(option(TCP_USER_TIMEOUT), 0) << "the kernel's own limit";
}

}  // namespace
}  // namespace hvd::posix
