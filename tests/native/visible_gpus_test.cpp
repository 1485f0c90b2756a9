#include "native/cuda/visible.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "in_own_folder.hpp"

namespace hvd::cuda {
namespace {

// A made-up tree of /proc and /dev.
class VisibleGpus : public testing::InOwnFolder {
 protected:
  void add(const std::string& bus_id, int minor, const std::string& uuid,
           const std::string& model = "Tesla V100-SXM2-16GB", const std::string& more = "") const {
    write("proc/driver/nvidia/gpus/" + bus_id + "/information",
          "Model: \t\t " + model + "\nIRQ:   \t\t 33\nGPU UUID: \t " + uuid + "\nBus Location: \t " + bus_id +
              "\nDevice Minor: \t " + std::to_string(minor) + "\n" + more);
    write("dev/nvidia" + std::to_string(minor), "");
  }
  void add_three() const {
    add("0004:05:00.0", 1, "GPU-bb01");
    add("0004:04:00.0", 0, "GPU-aa01");
    add("0035:03:00.0", 2, "GPU-ab02");
  }
  void forbid(int minor) const { std::filesystem::remove(folder_ + "/dev/nvidia" + std::to_string(minor)); }

  Visible look(std::map<std::string, std::string, std::less<>> variables = {}) const {
    return visible(Environment(std::move(variables)), folder_);
  }
  // The bus numbers in order, or the UUID where there is no bus id.
  std::string seen(const std::string& list) const {
    std::string text;
    for (const VisibleGpu& gpu : look({{"CUDA_VISIBLE_DEVICES", list}}).gpus)
      text += (text.empty() ? "" : " ") + (gpu.bus_id.empty() ? gpu.uuid : gpu.bus_id.substr(5, 2));
    return text;
  }
};

TEST_F(VisibleGpus, are_none_without_the_driver) {
  EXPECT_TRUE(look().gpus.empty());
  EXPECT_FALSE(look().has_driver);
  EXPECT_FALSE(look().are_hidden);
  EXPECT_EQ(seen("0,1"), "");
  EXPECT_EQ(seen("MIG-1"), "");
}

TEST_F(VisibleGpus, are_hidden_where_only_their_control_device_is_there) {
  write("dev/nvidiactl", "");
  EXPECT_TRUE(look().are_hidden);
  EXPECT_TRUE(look().gpus.empty());
  add_three();
  EXPECT_FALSE(look().are_hidden);
}

TEST_F(VisibleGpus, are_counted_by_bus_id) {
  add_three();
  Visible all = look();
  ASSERT_EQ(all.gpus.size(), 3U);
  EXPECT_EQ(all.gpus[0].bus_id, "0004:04:00.0");
  EXPECT_EQ(all.gpus[0].uuid, "GPU-aa01");
  EXPECT_EQ(all.gpus[0].model, "Tesla V100-SXM2-16GB");
  EXPECT_EQ(all.gpus[1].bus_id, "0004:05:00.0");
  EXPECT_EQ(all.gpus[2].bus_id, "0035:03:00.0");
  EXPECT_EQ(all.doubt, "");
}

TEST_F(VisibleGpus, have_bus_ids_in_lower_case_and_in_the_order_of_numbers) {
  add("10000:01:00.0", 0, "GPU-1");
  add("0000:C7:00.0", 1, "GPU-2");
  Visible all = look();
  ASSERT_EQ(all.gpus.size(), 2U);
  EXPECT_EQ(all.gpus[0].bus_id, "0000:c7:00.0");
  EXPECT_EQ(all.gpus[1].bus_id, "10000:01:00.0");
}

TEST_F(VisibleGpus, do_not_include_what_may_not_be_opened) {
  add_three();
  forbid(0);
  EXPECT_EQ(look().gpus.size(), 2U);
  EXPECT_EQ(seen("0"), "05") << "numbers count what the process may open";
  EXPECT_EQ(seen("2"), "");
  EXPECT_EQ(seen("GPU-aa"), "");
  std::filesystem::create_symlink(folder_ + "/dev/nowhere", folder_ + "/dev/nvidia0");
  EXPECT_EQ(look().gpus.size(), 2U);
  add("0004:05:00.0", 1, "GPU-bb01", "Tesla V100-SXM2-16GB", "GPU Excluded:\t Yes\n");
  EXPECT_EQ(look().gpus.size(), 1U);
  forbid(2);
  EXPECT_TRUE(look().gpus.empty());
  EXPECT_TRUE(look().has_driver);
}

TEST_F(VisibleGpus, are_not_guessed_from_damaged_files) {
  write("proc/driver/nvidia/gpus/0004:04:00.0/information", "Model: x\n");
  write("proc/driver/nvidia/gpus/0004:05:00.0/information", "Device Minor: ../null\n");
  write("proc/driver/nvidia/gpus/0004:06:00.0/registry", "");
  write("dev/nvidia", "");
  EXPECT_TRUE(look().gpus.empty());
}

TEST_F(VisibleGpus, are_those_that_the_variable_names) {
  add_three();
  struct Row {
    const char* list;
    const char* seen;
  };
  for (const Row& row : {
           Row{"2,0", "03 04"},
           Row{" 1 , 2 ", "05 03"},
           Row{"", ""},
           Row{" ", ""},
           Row{"-1", ""},
           Row{"1,-1,0", "05"},
           Row{"0,7,1", "04"},
           Row{"0,,1", "04"},
           Row{"0,", "04"},
           Row{"0,0", ""},
           Row{"1gpu,2", "05 03"},
           Row{"NoDevFiles", ""},
           Row{"all", ""},
           Row{"GPU-bb01,GPU-aa01", "05 04"},
           Row{"GPU-b", "05"},
           Row{"GPU-a", ""},  // two GPUs begin like this
           Row{"GPU-bb,GPU-a,GPU-aa", "05"},
           Row{"GPU-bb,GPU-bb01", ""},  // one GPU twice
           Row{"GPU-bb,0", "05"},
           Row{"0,GPU-bb", "04"},
           Row{"GPU-zz", ""},
           Row{"MIG-GPU-bb01/1/0", "05"},
           Row{"MIG-GPU-bb01/1/0,MIG-GPU-aa01/1/0", "05"},
           Row{"MIG-GPU-zz/1/0", ""},
           Row{"MIG-1234", "MIG-1234"},
           Row{"MIG-1234,MIG-5678", "MIG-1234"},
       })
    EXPECT_EQ(seen(row.list), row.seen) << row.list;
}

TEST_F(VisibleGpus, that_are_parts_keep_the_users_spelling) {
  add_three();
  Visible part = look({{"CUDA_VISIBLE_DEVICES", "MIG-GPU-bb01/1/0"}});
  ASSERT_EQ(part.gpus.size(), 1U);
  EXPECT_EQ(part.gpus[0].uuid, "MIG-GPU-bb01/1/0");
  EXPECT_EQ(part.gpus[0].bus_id, "0004:05:00.0");
  EXPECT_EQ(part.doubt, "");
  EXPECT_NE(look({{"CUDA_VISIBLE_DEVICES", "MIG-1234"}}).doubt.find("CUDA_VISIBLE_DEVICES=MIG-1234"),
            std::string::npos);
}

TEST_F(VisibleGpus, are_named_by_uuid_where_the_system_hides_the_uuids) {
  add("0004:04:00.0", 0, "GPU-\?\?\?\?\?\?\?\?-\?\?\?\?");
  Visible visible = look({{"CUDA_VISIBLE_DEVICES", "GPU-aa01"}});
  ASSERT_EQ(visible.gpus.size(), 1U);
  EXPECT_EQ(visible.gpus[0].uuid, "GPU-aa01");
  EXPECT_EQ(visible.gpus[0].bus_id, "");
  EXPECT_NE(visible.doubt, "");
  EXPECT_EQ(look().gpus[0].uuid, "");
}

TEST_F(VisibleGpus, of_several_models_are_in_doubt_unless_the_order_is_set) {
  add_three();
  add("0035:04:00.0", 3, "GPU-cc01", "Quadro K420");
  EXPECT_NE(look().doubt.find("CUDA_DEVICE_ORDER=PCI_BUS_ID"), std::string::npos);
  EXPECT_NE(look({{"CUDA_VISIBLE_DEVICES", "1"}}).doubt, "");
  EXPECT_EQ(look({{"CUDA_VISIBLE_DEVICES", "GPU-cc"}}).doubt, "") << "a UUID needs no order";
  EXPECT_EQ(look({{"CUDA_VISIBLE_DEVICES", ""}}).doubt, "");
  EXPECT_EQ(look({{"CUDA_DEVICE_ORDER", "PCI_BUS_ID"}}).doubt, "");
  EXPECT_NE(look({{"CUDA_DEVICE_ORDER", "FASTEST_FIRST"}}).doubt, "");
  forbid(3);
  EXPECT_EQ(look().doubt, "");
}

}  // namespace
}  // namespace hvd::cuda
