#include "native/posix/sockets/unix_socket.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "native/posix/processes/fork_guard.hpp"

namespace hvd::posix {
namespace {

struct Ends {
  Ends() {
    auto listening = listen_on_unix_socket();
    EXPECT_TRUE(listening);
    address = listening->address;
    auto connected = connect_to_unix_socket(address);
    EXPECT_TRUE(connected) << connected.error().message;
    auto accepted = accept_from(listening->socket);
    EXPECT_TRUE(accepted);
    left = std::move(*connected);
    right = std::move(*accepted);
  }
  std::string address;
  FileDescriptor left, right;
};

Result<Delivery> receive(const FileDescriptor& socket, std::string& text, FileDescriptor& descriptor) {
  Buffer message;
  message.reserve(100);
  auto received = receive_message(socket, message, descriptor);
  text = to_string(message);
  return received;
}

TEST(UnixSocket, listens_under_a_name_of_the_kernels_choice_without_a_file) {
  auto one = listen_on_unix_socket(), other = listen_on_unix_socket();
  ASSERT_TRUE(one && other);
  EXPECT_EQ(one->address[0], '@');
  EXPECT_GT(one->address.size(), 1U);
  EXPECT_NE(one->address, other->address);
  auto nobody = accept_from(one->socket);
  ASSERT_TRUE(nobody);
  EXPECT_FALSE(*nobody);
}

TEST(UnixSocket, keeps_messages_apart_and_carries_a_descriptor) {
  Ends ends;
  int pipe_ends[2];
  ASSERT_EQ(::pipe(pipe_ends), 0);
  FileDescriptor read_end(pipe_ends[0]), write_end(pipe_ends[1]);
  ASSERT_EQ(*send_message(ends.left, as_bytes("one")), Delivery::done);
  ASSERT_EQ(*send_message(ends.left, as_bytes("two"), write_end.get()), Delivery::done);
  std::string text;
  FileDescriptor got;
  ASSERT_EQ(*receive(ends.right, text, got), Delivery::done);
  EXPECT_EQ(text, "one");
  EXPECT_FALSE(got);
  ASSERT_EQ(*receive(ends.right, text, got), Delivery::done);
  EXPECT_EQ(text, "two");
  ASSERT_TRUE(got);
  EXPECT_NE(::fcntl(got.get(), F_GETFD) & FD_CLOEXEC, 0);
  ASSERT_EQ(::write(got.get(), "x", 1), 1);
  char byte = 0;
  EXPECT_EQ(::read(read_end.get(), &byte, 1), 1);
  EXPECT_EQ(*receive(ends.right, text, got), Delivery::would_block);
}

TEST(UnixSocket, tells_an_end_from_nothing_and_does_not_raise_a_signal) {
  Ends ends;
  ends.right.reset();
  std::string text;
  FileDescriptor none;
  EXPECT_EQ(*receive(ends.left, text, none), Delivery::closed);
  EXPECT_EQ(*send_message(ends.left, as_bytes("anybody?")), Delivery::closed);
}

TEST(UnixSocket, refuses_a_message_longer_than_the_receiver_allows) {
  Ends ends;
  ASSERT_EQ(*send_message(ends.left, as_bytes(std::string(1000, 'x'))), Delivery::done);
  std::string text;
  FileDescriptor none;
  EXPECT_FALSE(receive(ends.right, text, none));
}

TEST(UnixSocket, knows_the_process_behind_the_other_end) {
  Ends ends;
  auto process = process_behind(ends.left);
  ASSERT_TRUE(process);
  EXPECT_EQ(process->pid, ::getpid());
  EXPECT_EQ(process->uid, ::geteuid());
}

TEST(UnixSocket, explains_an_address_that_nobody_listens_at) {
  EXPECT_FALSE(connect_to_unix_socket("@nobody is here, certainly"));
  auto wrong = connect_to_unix_socket("/tmp/file");
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code, ErrorCode::invalid_argument);
}

// Forks a child. The child exits with 0 if `is_right` is true for the descriptor in the child.
int in_a_child(bool (*is_right)(int), int descriptor) {
  pid_t child = ::fork();
  if (child == 0) ::_exit(is_right(descriptor) ? 0 : 1);
  int status = -1;
  ::waitpid(child, &status, 0);
  return status;
}

TEST(ForkGuard, leaves_dev_null_in_the_place_of_a_withheld_descriptor) {
  Ends ends;
  withhold_from_children(ends.left.get());
  EXPECT_EQ(in_a_child([](int descriptor) { return ::write(descriptor, "gone", 4) == 4; }, ends.left.get()), 0);
  std::string text;
  FileDescriptor none;
  EXPECT_EQ(*receive(ends.right, text, none), Delivery::would_block);
  // In this process the descriptor is still the socket.
  ASSERT_EQ(*send_message(ends.left, as_bytes("here")), Delivery::done);
  stop_withholding(ends.left.get());
  EXPECT_EQ(in_a_child([](int descriptor) { return ::send(descriptor, "kept", 4, 0) == 4; }, ends.left.get()), 0);
}

}  // namespace
}  // namespace hvd::posix
