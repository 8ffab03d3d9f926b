// Writer of safetensors: a temporary file beside the target, then a rename, so that nobody ever sees half a file.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <set>
#include <system_error>

#include "core/check.h"
#include "mha/model/safetensors.h"
#include "model/json_fields.h"
#include "model/safetensors_format.h"

namespace mha {
namespace {

using model::printable;

std::string reason(int error) { return std::generic_category().message(error); }

// A file that vanishes again unless it is committed.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& target) : target_(target) {
    for (int attempt = 0; fd_ < 0; ++attempt) {
      path_ = core::join(target, ".", ::getpid(), ".", attempt, ".part");
      fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      MHA_CHECK(IoError, fd_ >= 0 || (errno == EEXIST && attempt < 1000), target_, ": cannot create ", path_, ": ", reason(errno));
    }
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (fd_ >= 0) ::close(fd_);
    if (!committed_) ::unlink(path_.c_str());
  }

  void write(const void* data, std::size_t bytes) {
    const char* next = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t written = ::write(fd_, next, bytes);
      if (written < 0 && errno == EINTR) continue;
      MHA_CHECK(IoError, written >= 0, target_, ": cannot write: ", reason(errno));
      next += written;
      bytes -= static_cast<std::size_t>(written);
    }
  }

  void commit() {
    MHA_CHECK(IoError, ::fsync(fd_) == 0, target_, ": cannot write: ", reason(errno));
    const int closed = ::close(fd_);
    fd_ = -1;
    MHA_CHECK(IoError, closed == 0, target_, ": cannot write: ", reason(errno));
    MHA_CHECK(IoError, std::rename(path_.c_str(), target_.c_str()) == 0, target_, ": cannot rename ", path_, " to it: ", reason(errno));
    committed_ = true;
  }

 private:
  std::string target_;
  std::string path_;
  int fd_ = -1;
  bool committed_ = false;
};

// The tensor's elements in dense order, whatever its strides.
void write_data(const ConstTensorView& tensor, TemporaryFile& file) {
  const auto count = static_cast<std::size_t>(element_count(tensor.shape));
  const std::size_t size = size_of(tensor.dtype);
  if (tensor.is_contiguous()) return file.write(tensor.data, count * size);
  std::array<Index, 4> sizes = {1, 1, 1, 1};
  std::array<Index, 4> strides = {0, 0, 0, 0};
  for (int axis = 0; axis < tensor.rank(); ++axis) {
    const auto to = static_cast<std::size_t>(axis + Dims::kMaxRank - tensor.rank());
    sizes[to] = tensor.size(axis);
    strides[to] = tensor.stride(axis);
  }
  std::vector<std::byte> row(static_cast<std::size_t>(sizes[3]) * size);
  for (Index i = 0; i < sizes[0]; ++i) {
    for (Index j = 0; j < sizes[1]; ++j) {
      for (Index k = 0; k < sizes[2]; ++k) {
        for (Index n = 0; n < sizes[3]; ++n) {
          const Index element = i * strides[0] + j * strides[1] + k * strides[2] + n * strides[3];
          const auto* from = static_cast<const std::byte*>(tensor.data) + element * static_cast<Index>(size);
          std::memcpy(row.data() + static_cast<std::size_t>(n) * size, from, size);
        }
        file.write(row.data(), row.size());
      }
    }
  }
}

void check_names(const std::string& path, std::span<const NamedTensor> tensors) {
  std::set<std::string_view> names;
  for (const NamedTensor& item : tensors) {
    MHA_CHECK(FormatError, !item.name.empty() && item.name != model::kMetadataKey, path, ": a tensor cannot be named ",
              printable(item.name));
    MHA_CHECK(FormatError, names.insert(item.name).second, path, ": two tensors are named ", printable(item.name));
    MHA_CHECK(ShapeError, item.tensor, path, ": tensor ", printable(item.name), " is absent");
  }
}

std::string_view stored_name(DType dtype) {
  const auto stored =
      std::find_if(model::kStoredDTypes.begin(), model::kStoredDTypes.end(), [&](const auto& s) { return s.dtype == dtype; });
  return stored->name;  // every DType has its line there
}

// The header's JSON, padded so that the data begins at a multiple of 8.
std::string header_text(const std::string& path, std::span<const NamedTensor* const> order,
                        const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header[std::string(model::kMetadataKey)] = metadata;
  std::size_t offset = 0;
  for (const NamedTensor* item : order) {
    const ConstTensorView& tensor = item->tensor;
    const std::size_t end = offset + static_cast<std::size_t>(element_count(tensor.shape)) * size_of(tensor.dtype);
    header[item->name] = {{"dtype", stored_name(tensor.dtype)},
                          {"shape", std::vector<Index>(tensor.shape.begin(), tensor.shape.end())},
                          {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::type_error&) {
    throw FormatError(path + ": a tensor's name or a text of the metadata is no UTF-8");
  }
  text.append((8 - (model::kLengthBytes + text.size()) % 8) % 8, ' ');
  MHA_CHECK(FormatError, text.size() <= model::kMostHeaderBytes, path, ": the header would have ", text.size(), " bytes, at most ",
            model::kMostHeaderBytes, " are allowed");
  return text;
}

}  // namespace

void save_safetensors(const std::string& path, std::span<const NamedTensor> tensors, const std::map<std::string, std::string>& metadata) {
  check_names(path, tensors);
  std::vector<const NamedTensor*> order;
  for (const NamedTensor& item : tensors) order.push_back(&item);
  std::sort(order.begin(), order.end(), [](const NamedTensor* a, const NamedTensor* b) {
    const std::size_t size_a = size_of(a->tensor.dtype);
    const std::size_t size_b = size_of(b->tensor.dtype);
    return size_a != size_b ? size_a > size_b : a->name < b->name;
  });
  const std::string header = header_text(path, order, metadata);
  TemporaryFile file(path);
  const std::uint64_t length = header.size();
  file.write(&length, sizeof length);
  file.write(header.data(), header.size());
  for (const NamedTensor* item : order) write_data(item->tensor, file);
  file.commit();
}

}  // namespace mha
