// What a request's target says, read with checks; and the error that ends a request with a status. Used by every file of this room.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "mha/error.h"
#include "mha/mask.h"
#include "mha/tensor.h"

namespace mha::view {

/// Ends a request. `remedy` says what to do about it.
class RequestError : public Error {
 public:
  RequestError(int status, const std::string& error, std::string remedy) : Error(error), status_(status), remedy_(std::move(remedy)) {}
  int status() const { return status_; }
  const std::string& remedy() const { return remedy_; }

 private:
  int status_;
  std::string remedy_;
};

enum class UnitKind { Word, Piece };

/// "/api/runs/9f/row?unit=word" -> path {"api", "runs", "9f", "row"}, parameters {{"unit", "word"}}. Names and values are percent-decoded.
class Target {
 public:
  /// Throws RequestError (400) for what is no such target.
  explicit Target(std::string_view text);

  const std::vector<std::string>& path() const { return path_; }
  /// The parameter, `fallback` where it is absent.
  std::string text(const std::string& name, const std::string& fallback) const;
  /// One of `choices`, the first where it is absent; RequestError, naming them, otherwise.
  std::string choice(const std::string& name, const std::vector<std::string>& choices) const;
  UnitKind unit() const { return choice("unit", {"word", "piece"}) == "word" ? UnitKind::Word : UnitKind::Piece; }
  /// A whole number in [0, end); RequestError where it is absent or none. `what` names what is counted.
  Index index(const std::string& name, Index end, const std::string& what) const;
  /// The same with a value for an absent parameter, in [least, most].
  Index number(const std::string& name, Index fallback, Index least, Index most) const;
  /// "A:B", 0 <= A < B <= size; all of it where it is absent.
  Interval range(const std::string& name, Index size) const;

 private:
  std::vector<std::string> path_;
  std::map<std::string, std::string> parameters_;
};

}  // namespace mha::view
