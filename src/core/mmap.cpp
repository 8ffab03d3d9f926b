// The POSIX side of MappedFile. Nothing else in the library opens files for reading.
#include "core/mmap.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "core/check.h"

namespace mha::core {
namespace {

std::string reason(int error) { return std::generic_category().message(error); }

// Closes the descriptor on every way out; the mapping outlives it.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

MappedFile::MappedFile(const std::string& path) {
  // Without O_NONBLOCK a named pipe in place of a model would hang here.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  MHA_CHECK(IoError, file.get() >= 0, path, ": cannot open: ", reason(errno));
  struct stat status{};
  MHA_CHECK(IoError, ::fstat(file.get(), &status) == 0, path, ": cannot read its size: ", reason(errno));
  MHA_CHECK(IoError, !S_ISDIR(status.st_mode), path, ": is a directory, not a file");
  MHA_CHECK(IoError, S_ISREG(status.st_mode), path, ": is not a regular file");
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ == 0) return;
  void* const data = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
  MHA_CHECK(IoError, data != MAP_FAILED, path, ": cannot map its ", size_, " bytes: ", reason(errno));
  data_ = data;
}

MappedFile::MappedFile(MappedFile&& other) noexcept : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

}  // namespace mha::core
