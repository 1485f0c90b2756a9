// The table of base/transports.hpp. --explain reads this table instead of asking the transports.
#include "base/transports.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string_view>

#include "transport/registry.hpp"

namespace hvd::transport {
namespace {

TEST(Preference, has_a_row_for_every_transport_and_no_other) {
  std::set<std::string_view> rows, transports;
  for (const TransportRow& row : transports_by_preference) rows.insert(row.name);
  for (const Maker& maker : registry()) transports.insert(maker.name);
  EXPECT_EQ(rows, transports);
}

}  // namespace
}  // namespace hvd::transport
