// Tests as text, x_test.ir beside x.cpp:
//
//   === what this case shows
//   # why, if that is not plain
//   <input>
//   ---
//   <expected>
//
// With SMELT_REWRITE=1 in the environment the expected parts are written anew with what came out;
// the diff is for a person to read. A case whose transformation throws expects "error: " and the
// message.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

namespace smelt {

struct IrCase {
  std::string name;
  std::string comment;
  std::string input;
  std::string expected;
};

inline std::vector<IrCase> read_ir_cases(const std::filesystem::path& path) {
  std::vector<IrCase> cases;
  std::ifstream file(path);
  std::string* part = nullptr;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("=== ")) {
      cases.push_back({.name = line.substr(4), .comment = "", .input = "", .expected = ""});
      part = &cases.back().input;
    } else if (cases.empty()) {
      ADD_FAILURE() << path << " does not begin with a line '=== name'";
      break;
    } else if (line == "---") {
      part = &cases.back().expected;
    } else if (line.starts_with("#")) {
      cases.back().comment += line + "\n";
    } else if (!line.empty()) {
      *part += line + "\n";
    }
  }
  return cases;
}

inline void write_ir_cases(const std::filesystem::path& path, const std::vector<IrCase>& cases) {
  std::ofstream file(path);
  for (const IrCase& one : cases) {
    file << (&one == cases.data() ? "" : "\n") << "=== " << one.name << "\n"
         << one.comment << one.input << "---\n"
         << one.expected;
  }
}

// Every case of the file through `transform`; `file` lies beside the source file `beside` (a
// __FILE__).
inline void expect_ir_cases(const char* beside, const std::string& file,
                            const std::function<std::string(const std::string&)>& transform) {
  const auto path = std::filesystem::path(beside).parent_path() / file;
  std::vector<IrCase> cases = read_ir_cases(path);
  EXPECT_FALSE(cases.empty()) << path << " is missing or has no case";
  const bool rewrite = std::getenv("SMELT_REWRITE") != nullptr;
  for (IrCase& one : cases) {
    std::string actual;
    try {
      actual = transform(one.input);
    } catch (const std::exception& error) {
      actual = std::string("error: ") + error.what() + "\n";
    }
    if (rewrite) {
      one.expected = actual;
    } else {
      EXPECT_EQ(actual, one.expected) << file << ": " << one.name;
    }
  }
  if (rewrite) write_ir_cases(path, cases);
}

}  // namespace smelt
