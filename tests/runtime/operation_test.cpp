// The table of prepared operations: what it keeps, and what other threads may do while the engine looks into it.
#include "runtime/operations/operation.hpp"

#include <gtest/gtest.h>

#include <thread>

namespace hvd::runtime {
namespace {

Signature of_shape(std::vector<std::int64_t> shape) {
  Signature signature;
  signature.shape = std::move(shape);
  return signature;
}

const OpNameView name{global_process_set, "gradient"};

TEST(OperationTable, keeps_what_is_held_and_nothing_else) {
  OperationTable table;
  Operation* first = table.prepare(name, of_shape({3}));
  EXPECT_EQ(table.prepare(name, of_shape({3})), first);
  Operation* other = table.prepare(name, of_shape({4}));
  EXPECT_NE(other, first);
  EXPECT_EQ(other->entry, first->entry);
  EXPECT_EQ(table.size(), 2u);
  table.release(*first);
  EXPECT_EQ(table.size(), 2u);
  table.release(*first);
  table.release(*other);
  EXPECT_EQ(table.size(), 0u);
}

TEST(OperationTable, knows_what_the_engine_has_taken_under_a_name) {
  OperationTable table;
  EXPECT_EQ(table.submitted(name), nullptr);
  Operation* operation = table.prepare(name, of_shape({3}));
  EXPECT_EQ(table.submitted(name), nullptr);
  operation->entry->submitted = operation;
  EXPECT_EQ(table.submitted(name), operation);
  operation->entry->submitted = nullptr;
  table.release(*operation);
}

// The thread sanitizer fails this test if the engine reads an entry that another thread may release.
TEST(OperationTable, is_read_by_the_engine_while_another_thread_gives_the_name_up) {
  OperationTable table;
  std::thread program([&table] {
    for (int round = 0; round < 10'000; ++round) table.release(*table.prepare(name, of_shape({3})));
  });
  for (int round = 0; round < 10'000; ++round) EXPECT_EQ(table.submitted(name), nullptr);
  program.join();
}

}  // namespace
}  // namespace hvd::runtime
