#include "diagnostics/log.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "diagnostics/counters.h"
#include "diagnostics/record.h"

namespace smelt {
namespace {

TEST(Log, WritesTheCategoriesThatAreOn) {
  set_log("graph, perf");
  EXPECT_TRUE(log_enabled(Log::graph));
  EXPECT_FALSE(log_enabled(Log::passes));
  testing::internal::CaptureStderr();
  log(Log::graph, "one");
  log(Log::passes, "two");
  log(Log::perf, "three");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "smelt[graph] one\nsmelt[perf] three\n");
  set_log("all");
  EXPECT_TRUE(log_enabled(Log::refusals));
  set_log("");
  EXPECT_FALSE(log_enabled(Log::refusals));
}

TEST(Log, ListsTheCategoriesWhenOneIsUnknown) {
  try {
    set_log("graph,grahp");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("'grahp'"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("refusals: "), std::string::npos) << error.what();
  }
  EXPECT_FALSE(log_enabled(Log::graph));
}

TEST(Counters, AddUp) {
  reset_counters();
  count(Counter::runs);
  count(Counter::runs, 4);
  EXPECT_EQ(read(Counter::runs), 5);
  for (const CounterRow& row : all_counters())
    EXPECT_EQ(row.value, row.name == "runs" ? 5 : 0) << row.name;
  reset_counters();
  EXPECT_EQ(read(Counter::runs), 0);
}

TEST(Record, IsATable) {
  Record record;
  record.entries = {{"capture", "trace", 0.25, false, "12 nodes"},
                    {"passes", "remove_dead", 0.0005, true, ""}};
  EXPECT_EQ(record.str(),
            "capture  trace        250.000 ms  -        12 nodes\n"
            "passes   remove_dead    0.500 ms  changed\n");
  EXPECT_EQ(record.seconds("passes"), 0.0005);
}

}  // namespace
}  // namespace smelt
