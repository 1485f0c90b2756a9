#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "in_own_folder.hpp"
#include "launcher/staging/chain.hpp"
#include "launcher/staging/environments.hpp"
#include "launcher/staging/staged_rank.hpp"
#include "launcher/staging/stager.hpp"
#include "launcher/staging/unpacker.hpp"

namespace hvd::launcher::staging {
namespace {

namespace fs = std::filesystem;

// A member of a tar archive in the form ustar, with its content. `written_size` replaces the 12 bytes of its size.
std::string member(const std::string& path, char type, const std::string& content = "", const std::string& link = "",
                   const std::string& written_size = "") {
  std::string header(512, '\0');
  header.replace(0, path.size(), path);
  header.replace(100, 7, "0000755");
  header.replace(108, 7, "0000000");
  header.replace(116, 7, "0000000");
  char size[13];
  std::snprintf(size, sizeof size, "%011o", static_cast<unsigned>(content.size()));
  header.replace(124, 11, size);
  if (!written_size.empty()) header.replace(124, 12, written_size);
  header.replace(136, 11, "00000000000");
  header.replace(148, 8, "        ");
  header[156] = type;
  header.replace(157, link.size(), link);
  header.replace(257, 8,
                 std::string("ustar\0"
                             "00",
                             8));
  unsigned sum = 0;
  for (char each : header) sum += static_cast<unsigned char>(each);
  std::snprintf(size, sizeof size, "%06o", sum);
  header.replace(148, 7, std::string(size, 6) + '\0');
  return header + content + std::string((512 - content.size() % 512) % 512, '\0');
}

std::string file(const std::string& path, const std::string& content = "#!/bin/sh\n") {
  return member(path, '0', content);
}

std::string link(const std::string& path, const std::string& target) {
  return member(path, '2', "", target);
}

std::string the_end() {
  return std::string(1024, '\0');
}

class Staging : public testing::InOwnFolder {
 protected:
  Staging() { ::signal(SIGPIPE, SIG_IGN); }
  ~Staging() override { ::signal(SIGPIPE, SIG_DFL); }

  std::string in_own(const std::string& name) { return folder_ + "/" + name; }

  Status unpack(const std::string& bytes, const std::string& packing, std::uint64_t room = 1 << 30) {
    struct Back {
      ~Back() { fs::current_path(before); }
      fs::path before = fs::current_path();
    } back;
    const std::string content = in_own("content");
    fs::remove_all(content);
    fs::create_directory(content);
    auto unpacker = Unpacker::start({content, packing, room});
    if (!unpacker) return unpacker.error();
    for (std::size_t at = 0; at < bytes.size(); at += 3000)
      HVD_RETURN_IF_ERROR((*unpacker)->add(as_bytes(std::string_view(bytes).substr(at, 3000))));
    return (*unpacker)->finish();
  }

  std::string packed(const std::string& bytes, const std::string& command) {
    std::ofstream(in_own("in"), std::ios::binary) << bytes;
    EXPECT_EQ(std::system((command + " < " + in_own("in") + " > " + in_own("out")).c_str()), 0);
    std::ifstream out(in_own("out"), std::ios::binary);
    return {std::istreambuf_iterator<char>(out), {}};
  }

  // Returns the error of unpacking an archive; empty if there is none.
  std::string fault_in(const std::string& archive) {
    auto done = unpack(archive, "none");
    return done ? "" : done.error().message;
  }

  void expect_fault(const std::string& archive, const std::string& text) {
    const std::string fault = fault_in(archive);
    EXPECT_NE(fault.find(text), std::string::npos) << fault << " lacks " << text;
  }

  Environments environments() { return Environments::in(folder_, "/nowhere").value(); }

  ArchiveState archive(const std::string& name, const std::string& content) {
    std::ofstream(in_own(name)) << content;
    return ArchiveState::of(in_own(name)).value();
  }

  Kept publish(const Environments& place, const std::string& digest, const ArchiveState& of) {
    auto unpacking = place.begin();
    fs::create_directory(unpacking.value().content + "/bin");
    return std::move(place.publish(std::move(*unpacking), digest, of, "job").value());
  }
};

TEST_F(Staging, lets_an_environment_pass) {
  EXPECT_EQ(fault_in(member("./", '5') + file("./bin/tool") + link("bin/python", "/usr/bin/python3.11") +
                     link("bin/python3", "python") + link("lib64", "lib") + link("lib/a/b", "../../bin/tool") +
                     member("lib/hard", '1', "", "bin/tool") + the_end()),
            "");
  EXPECT_EQ(fs::hard_link_count(in_own("content/lib/hard")), 2u);
  EXPECT_EQ(fs::read_symlink(in_own("content/bin/python")), "/usr/bin/python3.11");
}

TEST_F(Staging, refuses_what_leaves_the_folder) {
  expect_fault(file("bin/a") + file("/etc/passwd") + the_end(), "absolute");
  expect_fault(file("lib/../../a") + the_end(), "leaves the folder");
  expect_fault(member("a", '1', "", "../b") + the_end(), "hard link");
  expect_fault(member("a", '1', "", "/etc/passwd") + the_end(), "absolute");
  expect_fault(link("lib", "/usr/lib") + the_end(), "its link lib leads out");
  expect_fault(link("lib/a", "../../b") + the_end(), "its link lib/a leads out");
  expect_fault(link("d", "x") + file("d/evil") + the_end(), "through the link d");
  expect_fault(member("dev/sda", '4') + the_end(), "neither file, folder nor link");
}

// bin/python may lead to the Python of the system, but nothing may be written or read through it.
TEST_F(Staging, lets_nothing_through_the_python_of_a_venv) {
  const std::string python = link("bin/python", "/etc");
  expect_fault(python + file("bin/python/evil") + the_end(), "goes through the link bin/python to /etc");
  expect_fault(python + link("bin/tool", "python/passwd") + the_end(), "its link bin/tool leads out");
  expect_fault(python + link("lib", "bin/python/../..") + the_end(), "its link lib leads out");
  expect_fault(python + member("bin/python/", '5') + the_end(), "takes the place of a link");
  expect_fault(member("bin/python/", '5') + python + the_end(), "takes the place of a folder");
}

TEST_F(Staging, takes_a_hard_link_to_a_link_for_a_link) {
  expect_fault(link("bin/python", "/etc") + member("lib", '1', "", "bin/python") + the_end(), "its link lib leads out");
  expect_fault(link("a/b/c", "../../x") + member("c", '1', "", "a/b/c") + the_end(), "its link c leads out");
  expect_fault(link("bin/python", "/etc") + member("lib/x", '1', "", "./bin//python") + the_end(), "lib/x leads out");
  EXPECT_EQ(fault_in(link("bin/python", "/usr/bin/python3") + member("bin/python3", '1', "", "bin/python") + the_end()),
            "");
}

// Whatever a reader takes such a size for, it finds no member behind our back.
TEST_F(Staging, unpacks_no_member_that_a_size_hides) {
  for (const char* size : {"0001 0000\0\0", "10000000001", "\x80\1\0\0\0\0\0\0\0\0\0"}) {
    const std::string written = std::string(size, 11) + '\1';
    (void)fault_in(member("bin/x", '0', "1", "", written) + link("lib", "/etc") + file("bin/a") + the_end());
    EXPECT_FALSE(fs::is_symlink(in_own("content/lib"))) << written;
  }
}

TEST_F(Staging, refuses_links_that_lead_out_together) {
  expect_fault(link("p/q/up", "../..") + link("out", "p/q/up/../x") + the_end(), "its link out leads out");
  // the links form a circle, which leads to no file
  EXPECT_EQ(fault_in(link("a", "b") + link("b", "a") + the_end()), "");
}

TEST_F(Staging, reads_names_that_come_in_members_of_their_own) {
  const std::string name(200, 'n');
  expect_fault(member("././@LongLink", 'L', "../" + name) + file("short") + the_end(), "leaves the folder");
  expect_fault(member("././@LongLink", 'K', "/" + name) + link("short", "lib") + the_end(), "leads out");
  expect_fault(member("pax", 'x', "20 path=/etc/shadow\n") + file("short") + the_end(), "absolute");
  EXPECT_EQ(fault_in(member("././@LongLink", 'L', "lib/" + name) + file("short") + the_end()), "");
}

TEST_F(Staging, reads_names_for_all_members_and_names_of_sparse_files) {
  EXPECT_EQ(fault_in(member("pax", 'g', "13 comment=x\n") + file("bin/a") + the_end()), "");  // of git archive
  expect_fault(member("pax", 'x', "27 GNU.sparse.name=../evil\n12 path=a/b\n") + file("short") + the_end(),
               "leaves the folder");
}

TEST_F(Staging, refuses_what_is_damaged_or_cut) {
  std::string archive = file("bin/a", std::string(5000, 'a'));
  expect_fault(archive.substr(0, 3000), "it is damaged");
  archive[3] = 'x';
  expect_fault(file("bin/first") + archive, "Damaged tar archive");
  expect_fault(std::string(1024, '\0'), "nothing in it");
  expect_fault(file("bin/a") + file("bin/b"), "it has no end");
  expect_fault("no archive at all", "no archive of tar");
}

TEST_F(Staging, unpacks_what_tar_and_the_usual_programs_have_packed) {
  const std::string large(3 << 20, 'x'), archive = file("bin/tool") + file("lib/large", large) + the_end();
  for (const auto& [packing, command] : std::vector<std::pair<std::string, std::string>>{
           {"none", "cat"}, {"gzip", "gzip"}, {"zstd", "zstd -q"}, {"xz", "xz -1"}, {"bzip2", "bzip2"}}) {
    const std::string bytes = packed(archive, command);
    EXPECT_EQ(packing_of(bytes).value(), packing);
    auto done = unpack(bytes, packing);
    ASSERT_TRUE(done) << packing << ": " << done.error().message;
    EXPECT_EQ(fs::file_size(in_own("content/lib/large")), large.size());
    EXPECT_EQ(::access(in_own("content/bin/tool").c_str(), X_OK), 0);
    EXPECT_FALSE(unpack(bytes.substr(0, bytes.size() - 4), packing)) << packing;  // behind the last member
  }
}

// Python compiles a module again whose time is not the one that its .pyc has.
TEST_F(Staging, keeps_times_and_names_of_any_letters) {
  const std::string name = "lib/na\xc3\xafve.py";
  EXPECT_EQ(fault_in(member("pax", 'x', "22 path=" + name + "\n") + file("short") + file("lib/\xff") + the_end()), "");
  struct stat about {};
  ASSERT_EQ(::stat(in_own("content/" + name).c_str(), &about), 0);
  EXPECT_EQ(about.st_mtime, 0);
  EXPECT_TRUE(fs::exists(in_own("content/lib/\xff")));
}

TEST_F(Staging, says_what_is_wrong_with_an_archive) {
  EXPECT_NE(packing_of("PK\3\4 of another kind").error().message.find("another kind"), std::string::npos);
  std::string bytes = packed(file("bin/a", std::string(200000, 'a')) + the_end(), "gzip -1");
  auto cut = unpack(bytes.substr(0, bytes.size() / 2), "gzip");
  ASSERT_FALSE(cut);
  EXPECT_NE(cut.error().message.find("damaged: gzip"), std::string::npos) << cut.error().message;
  bytes[bytes.size() - 6] ^= 1;
  auto wrong = unpack(bytes, "gzip");
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().message.find("incorrect data check"), std::string::npos) << wrong.error().message;
  auto evil = unpack(packed(file("../evil") + the_end(), "gzip"), "gzip");
  ASSERT_FALSE(evil);
  EXPECT_FALSE(fs::exists(in_own("evil")));
}

TEST_F(Staging, says_how_to_pack_what_this_libarchive_does_not_read) {
  const std::string bytes = file("bin/a") + the_end();
  auto frame_of = [&](int log_of_window) {  // one block of zstd, not compressed
    const auto block = static_cast<unsigned>(bytes.size()) << 3 | 1;
    std::string head("\x28\xb5\x2f\xfd\0", 5);
    for (unsigned byte : {static_cast<unsigned>(log_of_window - 10) << 3, block, block >> 8, block >> 16})
      head += static_cast<char>(byte & 0xff);
    return head + bytes;
  };
  EXPECT_TRUE(unpack(frame_of(27), "zstd"));
  auto too_long = unpack(frame_of(28), "zstd");
  ASSERT_FALSE(too_long);
  EXPECT_EQ(
      too_long.error().message.find("its window is too long for libarchive: pack with a window of at most 128 MiB"), 0u)
      << too_long.error().message;

  archive::Calls without_zstd = *archive::calls().value();
  without_zstd.archive_read_support_filter_zstd = [](archive::Handle) { return archive::only_a_warning; };
  write("zstd.tar", frame_of(20));
  posix::FileDescriptor packed(::open(in_own("zstd.tar").c_str(), O_RDONLY | O_CLOEXEC));
  auto reader = archive::Reader::open(without_zstd, packed.get(), "zstd");
  const Status read = !reader ? Status(reader.error()) : [&] {
    auto member = reader->next();
    return member ? Status() : Status(member.error());
  }();
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().message.find("libarchive was built without zstd on this node"), 0u) << read.error().message;
}

TEST_F(Staging, says_how_much_room_is_needed_and_how_much_is_there) {
  const std::string archive = file("a", std::string(3 << 20, 'a')) + file("b", std::string(2 << 20, 'b')) + the_end();
  auto done = unpack(packed(archive, "gzip"), "gzip", 1 << 20);
  ASSERT_FALSE(done);
  EXPECT_NE(done.error().message.find("need 5.0 MiB, free are 1.0 MiB"), std::string::npos) << done.error().message;
}

TEST_F(Staging, knows_an_archive_again_until_it_is_changed) {
  auto place = environments();
  const ArchiveState state = archive("env.tar", "first");
  EXPECT_EQ(place.digest_of(state), "");
  Kept kept = publish(place, "0123", state);
  EXPECT_EQ(kept.prefix, place.folder() + "/0123/content");
  EXPECT_EQ(place.digest_of(state), "0123");
  EXPECT_EQ(place.digest_of(archive("env.tar", "second one")), "");
  EXPECT_FALSE(place.use("4567"));
}

TEST_F(Staging, lets_two_jobs_stage_the_same_archive_at_once) {
  auto place = environments();
  const ArchiveState state = archive("env.tar", "x"), copy = archive("copy.tar", "x");
  auto one = place.begin(), other = place.begin();
  for (const auto& each : {&*one, &*other}) fs::create_directories(each->content + "/env/bin");
  auto first = place.publish(std::move(*one), "0123", state, "job 1");
  auto second = place.publish(std::move(*other), "0123", copy, "job 2");
  ASSERT_TRUE(first);
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_EQ(first->prefix, place.folder() + "/0123/content/env");
  EXPECT_EQ(second->prefix, first->prefix);
  EXPECT_EQ(place.digest_of(copy), "0123");
  EXPECT_EQ(std::distance(fs::directory_iterator(place.folder()), {}), 1);
}

TEST_F(Staging, removes_only_what_nobody_uses) {
  auto place = environments();
  const ArchiveState state = archive("env.tar", "x");
  {
    Kept kept = publish(place, "0123", state);
    place.remove("0123", "job");
    EXPECT_TRUE(place.use("0123"));  // it is not removed, because a rank uses it
  }
  place.remove("0123", "another job");
  EXPECT_TRUE(place.use("0123"));  // it is not removed, because another job has used it since
  place.remove_old("");
  EXPECT_TRUE(place.use("0123"));  // it is not removed, because it was used just now
  const timespec long_ago[2] = {{1000000000, 0}, {1000000000, 0}};
  ::utimensat(AT_FDCWD, (place.folder() + "/0123/last-use").c_str(), long_ago, 0);
  place.remove_old("0123");
  EXPECT_TRUE(place.use("0123"));  // it is not removed, because it is the environment that is wanted now
  place.remove_old("4567");
  EXPECT_FALSE(place.use("0123"));
  EXPECT_TRUE(fs::is_empty(place.folder()));
}

TEST_F(Staging, replaces_an_environment_that_was_never_made_ready) {
  auto place = environments();
  fs::create_directories(place.folder() + "/0123/content/bin");
  EXPECT_FALSE(place.use("0123"));
  publish(place, "0123", archive("env.tar", "x"));
  EXPECT_TRUE(place.use("0123"));
}

TEST_F(Staging, does_not_use_a_folder_that_others_may_write_to) {
  auto place = environments();
  ::chmod(place.folder().c_str(), 0777);
  auto refused = Environments::in(folder_, "/nowhere");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("this user alone"), std::string::npos) << refused.error().message;
}

TEST_F(Staging, refuses_an_archive_without_an_environment) {
  auto place = environments();
  auto unpacking = place.begin();
  fs::create_directories(unpacking.value().content + "/src");
  auto published = place.publish(std::move(*unpacking), "0123", archive("env.tar", "x"), "job");
  ASSERT_FALSE(published);
  EXPECT_NE(published.error().message.find("no folder bin"), std::string::npos) << published.error().message;
}

TEST_F(Staging, refuses_a_folder_bin_that_leads_in_a_circle) {
  auto place = environments();
  auto unpacking = place.begin();
  fs::create_symlink("bin", unpacking.value().content + "/bin");
  EXPECT_FALSE(place.publish(std::move(*unpacking), "0123", archive("env.tar", "x"), "job"));
}

TEST_F(Staging, removes_what_may_not_be_written_to) {
  constexpr uid_t nobody = 65534;
  const bool is_root = ::geteuid() == 0;  // who may write to everything
  if (is_root) {
    ASSERT_EQ(::chown(folder_.c_str(), nobody, nobody) + ::seteuid(nobody), 0);
  }
  fs::create_directories(in_own("tree/a/b"));
  std::ofstream(in_own("tree/a/b/file")) << "x";
  fs::permissions(in_own("tree/a/b"), fs::perms::owner_read);
  fs::permissions(in_own("tree/a"), fs::perms::owner_read | fs::perms::owner_exec);
  remove_tree(in_own("tree"));
  EXPECT_FALSE(fs::exists(in_own("tree")));
  if (is_root) {
    EXPECT_EQ(::seteuid(0), 0);
  }
}

TEST_F(Staging, neighbours_pass_blocks_on_and_drop_strangers) {
  auto listening = posix::listen_for_peers("lo", {});
  ASSERT_TRUE(listening);
  posix::PeerSockets sockets = std::move(*listening);
  const std::string secret(secret_bytes, 's'), other(secret_bytes, 'o');
  const Deadline deadline = Deadline::after(std::chrono::seconds(30));
  auto stranger = Neighbour::dial("n2", sockets.endpoints, {}, other, deadline);
  ASSERT_TRUE(stranger);
  std::thread sender([&] {
    auto next = Neighbour::dial("n2", sockets.endpoints, {}, secret, deadline);
    ASSERT_TRUE(next);
    Buffer block(block_bytes, std::byte{7});
    for (int count = 0; count < 20; ++count) EXPECT_TRUE(next->send(block));
    EXPECT_TRUE(next->send_end(sha256(as_bytes("all"))));
  });
  auto before = Neighbour::wait_for("n1", sockets, secret, deadline);
  ASSERT_TRUE(before);
  Digest digest{};
  std::size_t bytes = 0;
  for (;;) {
    auto block = before->receive(digest);
    ASSERT_TRUE(block) << block.error().message;
    if (block->empty()) break;
    bytes += block->size();
  }
  sender.join();
  EXPECT_EQ(bytes, 20 * block_bytes);
  EXPECT_EQ(digest, sha256(as_bytes("all")));
  auto lost = before->receive(digest);
  ASSERT_FALSE(lost);
  EXPECT_TRUE(lost.error().is_a_consequence);
}

TEST(StagedRank, is_told_by_a_line_and_a_command) {
  auto staged = staged_in("3: horovod-staged: 0123abcd 4 2\r");
  ASSERT_TRUE(staged);
  EXPECT_EQ(staged->digest, "0123abcd");
  EXPECT_EQ(staged->nodes, 4);
  EXPECT_EQ(staged->new_nodes, 2);
  EXPECT_FALSE(staged_in("hello"));
  const auto command = in_staged_environment("/bin/horovodrun", "0123", "", {"python", "train.py"});
  EXPECT_EQ(words_of_staging(command), command.size() - 2);
  EXPECT_EQ(words_of_staging({"python", "train.py"}), 0u);
}

}  // namespace
}  // namespace hvd::launcher::staging
