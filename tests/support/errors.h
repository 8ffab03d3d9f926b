// What an error says: messages must name the argument and the numbers, and tests look for both.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace mha::test {

/// The text of the Kind that `action` throws; a failure where it throws nothing. Another kind passes through and fails the test.
template <class Kind, class Action>
std::string text_of(Action&& action) {
  try {
    action();
  } catch (const Kind& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

/// Whether `text` contains every one of `parts`.
template <class... Parts>
testing::AssertionResult mentions(std::string_view text, const Parts&... parts) {
  auto result = testing::AssertionSuccess();
  const auto look = [&](std::string_view part) {
    if (text.find(part) == std::string_view::npos) result = testing::AssertionFailure() << "'" << part << "' is not in: " << text;
  };
  (look(parts), ...);
  return result;
}

}  // namespace mha::test
