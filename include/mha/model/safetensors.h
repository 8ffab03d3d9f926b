// Safetensors files: SafetensorsFile (mapped, checked as a whole before anything is handed out) and save_safetensors.
//
//   mha::SafetensorsFile file("model.safetensors");
//   mha::ConstTensorView table = file.tensor("embeddings.word_embeddings.weight");   // no copy: straight into the mapped file
//
// Const objects may be used from several threads at once. A file that somebody truncates while it is mapped is out of scope: the
// operating system then raises SIGBUS on access.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mha/tensor.h"

namespace mha {

class SafetensorsFile {
 public:
  /// What the header says of one tensor, whether or not this library can compute with it.
  struct Info {
    std::string dtype;         // as in the file: "F32", "BF16", "I64", "F8_E4M3", ...
    std::vector<Index> shape;  // of any rank
    std::size_t bytes = 0;
  };

  /// Maps the file and checks all of the header and every tensor's place in it: known dtype, sizes without overflow, bytes that match the
  /// shape, the whole data covered once, no key twice, bools that are 0 or 1. Throws IoError where the file cannot be opened, FormatError
  /// (file, tensor, byte) for anything the format forbids.
  explicit SafetensorsFile(const std::string& path);
  SafetensorsFile(SafetensorsFile&&) noexcept;
  SafetensorsFile& operator=(SafetensorsFile&&) noexcept;
  ~SafetensorsFile();

  const std::string& path() const;
  /// All tensors, sorted by name.
  std::vector<std::string> names() const;
  bool contains(const std::string& name) const;
  /// Throws FormatError where there is no such tensor.
  Info info(const std::string& name) const;
  /// Dense view of the tensor, valid while this object (or the one it was moved into) lives. Data that is not aligned for its type is
  /// copied once and kept. Throws FormatError where there is no such tensor, DTypeError for a dtype this library does not compute with
  /// (only F32, F64, BF16, F16, BOOL and I64 are), ShapeError for a rank above 4.
  ConstTensorView tensor(const std::string& name) const;
  /// The file's free-form texts (`__metadata__`).
  const std::map<std::string, std::string>& metadata() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// One tensor to be written; any strides.
struct NamedTensor {
  std::string name;
  ConstTensorView tensor;
};

/// Writes the file at once or not at all (a temporary file beside it, then a rename). Data is laid out by falling element size, so that all
/// of it is aligned. Throws FormatError for a name that is empty, reserved, no UTF-8 or there twice, ShapeError for an absent tensor,
/// IoError where it cannot be written.
void save_safetensors(const std::string& path, std::span<const NamedTensor> tensors,
                      const std::map<std::string, std::string>& metadata = {});

}  // namespace mha
