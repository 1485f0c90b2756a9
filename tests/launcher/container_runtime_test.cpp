#include "launcher/agent/container_runtime.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "in_own_folder.hpp"
#include "launcher/options/image_file.hpp"

namespace hvd::launcher {
namespace {

using Words = std::vector<std::string>;
std::set<std::string> programs;  // the programs that exist on the host

HostView host() {
  return {"/gpfs/me", DeviceKind::host,
          [](const std::string& path) { return path.find("absent") == std::string::npos; },
          [](const std::string& name) { return programs.contains(name) ? "/bin/" + name : std::string(); }};
}

Environment of_slurm() {
  return Environment({{"PMIX_SERVER_TMPDIR", "/var/spool/slurmd/pmix.1.0/"},
                      {"PMIX_DSTORE_21_BASE_PATH", "/var/spool/slurmd/pmix.1.0//pmix_dstor_ds21"},
                      {"PMIX_SYSTEM_TMPDIR", "/tmp"},
                      {"PMIX_SECURITY_MODE", "munge,native"},
                      {"PMIX_RANK", "1"},
                      {"HOME", "/home/me"}});
}

Words command(ImageKind kind, const Environment& of_rank, HostView view) {
  auto words = command_in_image({"/images/it", kind}, {"python", "a b.py"}, of_rank, view);
  return words ? *words : Words{words.error().message};
}

bool has(const Words& words, const Words& part) {
  return std::search(words.begin(), words.end(), part.begin(), part.end()) != words.end();
}

TEST(ContainerRuntime, shows_the_folders_of_the_launchers_server_and_of_the_user) {
  auto binds = binds_for_rank(of_slurm(), host());
  ASSERT_TRUE(binds) << binds.error().message;
  const std::vector<Bind> expected{{"/gpfs/me", "/gpfs/me"},
                                   {"/var/spool/slurmd/pmix.1.0", "/var/spool/slurmd/pmix.1.0"},
                                   {"/run/munge", "/run/munge"}};
  std::vector<Bind> found = *binds;
  ASSERT_EQ(found.size(), expected.size());
  for (const Bind& bind : expected) EXPECT_NE(std::find(found.begin(), found.end(), bind), found.end()) << bind.source;
}

TEST(ContainerRuntime, shows_what_the_user_names_and_refuses_what_is_not_there) {
  Environment of_rank({{"HOROVOD_CONTAINER_BIND", "/data:/in,/lustre"}, {"HOROVOD_CONTAINER_MPI", "/opt/cray"}});
  auto binds = binds_for_rank(of_rank, host());
  ASSERT_TRUE(binds) << binds.error().message;
  for (const Bind& bind : {Bind{"/data", "/in"}, Bind{"/lustre", "/lustre"}, Bind{"/opt/cray", "/host/mpi"}})
    EXPECT_NE(std::find(binds->begin(), binds->end(), bind), binds->end()) << bind.source;
  of_rank.set("HOROVOD_CONTAINER_BIND", "/absent");
  EXPECT_NE(binds_for_rank(of_rank, host()).error().message.find("no /absent on this host"), std::string::npos);
  of_rank.set("HOROVOD_CONTAINER_BIND", "");
  of_rank.set("HOROVOD_CONTAINER_MPI", "/absent");
  EXPECT_NE(binds_for_rank(of_rank, host()).error().message.find("--container-mpi /absent"), std::string::npos);
}

TEST(ContainerRuntime, composes_the_command_of_apptainer_with_gpus) {
  programs = {"apptainer", "singularity", "ch-run"};
  HostView view = host();
  view.gpus = DeviceKind::cuda;
  Words words = command(ImageKind::sif, of_slurm(), view);
  EXPECT_EQ(Words(words.begin(), words.begin() + 5), (Words{"/bin/apptainer", "exec", "--pwd", "/gpfs/me", "--nv"}));
  EXPECT_TRUE(has(words, {"--bind", "/run/munge:/run/munge"}));
  EXPECT_EQ(Words(words.end() - 3, words.end()), (Words{"/images/it", "python", "a b.py"}));
  view.gpus = DeviceKind::rocm;
  EXPECT_TRUE(has(command(ImageKind::sif, of_slurm(), view), {"--rocm", "--bind"}));
  programs = {"singularity"};
  EXPECT_EQ(command(ImageKind::sif, of_slurm(), view)[0], "/bin/singularity");
  EXPECT_TRUE(has(command(ImageKind::oci, of_slurm(), view), {"oci:/images/it", "python"}));
}

TEST(ContainerRuntime, composes_the_command_of_charliecloud_with_the_images_variables) {
  programs = {"ch-run"};
  Words words = command(ImageKind::folder, of_slurm(), host());
  EXPECT_TRUE(has(words, {"--set-env"}));
  EXPECT_TRUE(has(words, {"--bind=/var/spool/slurmd/pmix.1.0:/var/spool/slurmd/pmix.1.0"}));
  EXPECT_EQ(Words(words.end() - 4, words.end()), (Words{"/images/it", "--", "python", "a b.py"}));
}

TEST(ContainerRuntime, binds_for_charliecloud_over_folders_that_the_image_has) {
  programs = {"ch-run"};
  HostView view = host();
  view.exists = [](const std::string& path) {
    return !path.starts_with("/images/it") || path == "/images/it/gpfs" || path == "/images/it/opt";
  };
  EXPECT_TRUE(has(command(ImageKind::folder, {}, view), {"--bind=/gpfs:/gpfs"}));
  view.folder = "/opt/me";  // the mount must not hide the image's own /opt
  const std::string message = command(ImageKind::folder, {}, view)[0];
  EXPECT_NE(message.find("has no folder /opt/me over which"), std::string::npos) << message;
}

TEST(ContainerRuntime, hands_ranks_their_variables_where_the_runtime_does_not) {
  programs = {"podman-hpc", "enroot"};
  Environment of_rank = of_slurm();
  const Words handed_on = {"PMIX_RANK", "EPOCHS", "http_proxy", "PYTHONUNBUFFERED"};
  const Words of_image = {"HOME", "PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "CONDA_PREFIX", "BASH_FUNC_module%%", "A*"};
  for (const Words* names : {&handed_on, &of_image})
    for (const std::string& name : *names) of_rank.set(name, "1");
  for (auto [kind, program] : {std::pair(ImageKind::named, "/bin/podman-hpc"), {ImageKind::squashfs, "/bin/enroot"}}) {
    Words words = command(kind, of_rank, host());
    EXPECT_EQ(words[0], program);
    for (const std::string& name : handed_on) EXPECT_TRUE(has(words, {"--env", name})) << program << name;
    for (const std::string& name : of_image) EXPECT_FALSE(has(words, {"--env", name})) << program << name;
  }
}

TEST(ContainerRuntime, names_the_programs_that_would_do_where_none_is_there) {
  programs = {"enroot"};
  EXPECT_NE(command(ImageKind::sif, {}, host())[0].find("expected one of apptainer, singularity;"), std::string::npos);
  Environment of_rank;
  of_rank.set("HOROVOD_CONTAINER_RUNTIME", "docker");
  const std::string message = command(ImageKind::folder, of_rank, host())[0];
  EXPECT_NE(message.find("HOROVOD_CONTAINER_RUNTIME=docker is none of those"), std::string::npos) << message;
}

using ImageFile = testing::InOwnFolder;

TEST_F(ImageFile, is_known_by_its_first_bytes_and_a_folder_by_what_is_in_it) {
  write("a.sif", std::string("#!/usr/bin/env run-singularity\n") + std::string(1, '\0') + "SIF_MAGIC");
  write("b.sqsh", "hsqs....");
  write("root/usr/bin/true", "");
  write("layout/oci-layout", "{}");
  for (const auto& [word, kind] : {std::pair{"/a.sif", ImageKind::sif}, std::pair{"/b.sqsh", ImageKind::squashfs},
                                   std::pair{"/root/", ImageKind::folder}, std::pair{"/layout", ImageKind::oci}}) {
    auto image = find_image(folder_ + word);
    ASSERT_TRUE(image) << image.error().message;
    EXPECT_EQ(image->kind, kind) << word;
    EXPECT_TRUE(image->word.starts_with("/") && !image->word.ends_with("/")) << image->word;
  }
  auto named = find_image("horovod:1.0");
  ASSERT_TRUE(named);
  EXPECT_EQ(named->kind, ImageKind::named);
}

TEST_F(ImageFile, that_is_none_is_refused_with_what_was_found) {
  write("train.py", "import horovod");
  write("empty/file", "");
  auto message = [&](const std::string& word) { return find_image(word).error().message; };
  EXPECT_NE(message(folder_ + "/train.py").find("a file of another kind"), std::string::npos);
  EXPECT_NE(message(folder_ + "/empty").find("neither usr, bin nor oci-layout"), std::string::npos);
  EXPECT_NE(message("gone.sif").find("nothing there"), std::string::npos);
}

}  // namespace
}  // namespace hvd::launcher
