#include "log/call_log.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace smelt {
namespace {

const char* const kText =
    "log {\n"
    "  ambient grad\n"
    "  ambient no_grad\n"
    "  ambient inference\n"
    "  input %0: f32[2, 3] memory 1 requires_grad\n"
    "  const %1: f32[] memory 2\n"
    "  inner %5: f32[2] memory 7 dual apart\n"
    "  %2: f32[2, 3] memory 3 requires_grad retains_grad = aten::mul.Tensor(%0, %1)\n"
    "  %2 = aten::add_.Scalar(%2, none, 1) writes (%2) takes (s0 at 1) rises (%2 by 1, %5 by 2) "
    "ambient 1\n"
    "  %3: ? memory 0 dynamic, _ = mine::op([%2, none], \"mean\", opaque 0) takes (s1 at 1 element "
    "0, "
    "s2 at 0 tensor) random sized has_effects calls_back\n"
    "  %4: f32[2, 3]{1, 2} memory 4 = aten::t(%2) ambient 2 number 0 "
    "gives 0.5 recomputed 1 expected registers_hook\n"
    "  smelt::set_grad(%0, none) effect\n"
    "  return (%4, none)\n"
    "}\n";

TEST(CallLog, TextGoesBothWays) {
  const CallLog log = CallLog::parse(kText);
  EXPECT_EQ(log.str(), kText);
  log.verify();
  EXPECT_EQ(CallLog::parse(log.str()), log);
}

TEST(CallLog, HashIsOfWhatIsSaid) {
  const CallLog log = CallLog::parse(kText);
  CallLog other = log;
  EXPECT_EQ(other.hash(), log.hash());
  other.calls[0].random = true;
  EXPECT_NE(other.hash(), log.hash());
}

TEST(CallLog, BadTextIsSaidWithItsPlace) {
  const auto message = [](const char* text) -> std::string {
    try {
      CallLog::parse(text);
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  };
  EXPECT_NE(message("log {\n  ambient loud\n").find("grad, no_grad, inference"), std::string::npos);
  EXPECT_NE(
      message("log {\n  input %1: f32[2] memory 1\n  return ()\n}\n").find("%0 is never made"),
      std::string::npos);
  EXPECT_NE(message("log {\n  input %0: f32[2]\n").find("'memory'"), std::string::npos);
}

TEST(CallLog, VerifyFindsWhatIsWrong) {
  const CallLog good = CallLog::parse(kText);
  CallLog log = good;
  log.calls[0].args[0] = Ref{4};  // made later
  EXPECT_THROW(log.verify(), InternalError);
  log = good;
  log.calls[1].ambient = 3;
  EXPECT_THROW(log.verify(), InternalError);
  log = good;
  log.calls[1].takes[0].argument = 9;
  EXPECT_THROW(log.verify(), InternalError);
  log = good;
  log.calls[1].rises[0].value = 9;
  EXPECT_THROW(log.verify(), InternalError);
  log = good;
  log.calls[1].given = 2;
  EXPECT_THROW(log.verify(), InternalError);
  log = good;
  log.outputs = {17};
  EXPECT_THROW(log.verify(), InternalError);
}

TEST(CallLog, ArgumentsAreThoseInListsToo) {
  const CallLog log = CallLog::parse(kText);
  std::vector<LogValue> seen;
  each_argument(log.calls[2], [&](LogValue value) { seen.push_back(value); });
  EXPECT_EQ(seen, std::vector<LogValue>{2});
  EXPECT_TRUE(is_argument(log.calls[2], 2));
  EXPECT_TRUE(log.gives_dynamic(log.calls[2]));
  EXPECT_FALSE(log.takes_dynamic(log.calls[2]));
}

}  // namespace
}  // namespace smelt
