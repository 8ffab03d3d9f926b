// Read-only mapping of a whole file. Used by the readers of model files; knows nothing of any format.
// A file that somebody truncates while it is mapped raises SIGBUS on access: out of scope, as for every user of mmap.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace mha::core {

class MappedFile {
 public:
  /// Throws IoError where the file cannot be opened or mapped, or is no regular file. An empty file gives empty bytes.
  explicit MappedFile(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  /// The content; valid while this object (or the one it was moved into) lives.
  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }

 private:
  void* data_ = nullptr;  // page aligned; nullptr for an empty file
  std::size_t size_ = 0;
};

}  // namespace mha::core
