// The errors this library throws. Used by every room; a user catches `mha::Error` or one of its kinds.
// Errors are thrown by validation, constructors and loaders only, i.e. before any output is touched.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace mha {

/// Base of everything the library throws. The text names the argument and the numbers.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Sizes, strides or option values that cannot be computed with.
class ShapeError : public Error {
 public:
  using Error::Error;
};

/// A tensor of a dtype that the operation does not take.
class DTypeError : public Error {
 public:
  using Error::Error;
};

/// A file whose content is not what its format demands; the text names the file and, where known, the byte.
class FormatError : public Error {
 public:
  using Error::Error;
};

/// A file that cannot be opened, read or written.
class IoError : public Error {
 public:
  using Error::Error;
};

}  // namespace mha
