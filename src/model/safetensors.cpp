// Reader of safetensors: everything in the header is checked when the file is opened; afterwards a tensor is a pointer into the mapping.
// The rules are those of the format's description (Hugging Face, safetensors, "Format"); nothing of the file is trusted.
#include "mha/model/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <mutex>
#include <utility>

#include "core/check.h"
#include "core/mmap.h"
#include "model/json_fields.h"
#include "model/safetensors_format.h"

namespace mha {
namespace {

using model::Json;
using model::JsonFields;
using model::printable;
using model::StoredDType;

constexpr Index kMostIndex = std::numeric_limits<Index>::max();

struct Entry {
  const StoredDType* stored = nullptr;
  std::vector<Index> shape;
  std::size_t begin = 0;  // bytes from the start of the data
  std::size_t end = 0;
};

using Entries = std::map<std::string, Entry, std::less<>>;

struct Header {
  Entries entries;
  std::map<std::string, std::string> metadata;
  std::size_t data_begin = 0;  // byte of the file
};

// [begin, data_begin) of the header's JSON text, as a view of the file.
std::string_view header_text(std::span<const std::byte> bytes, const std::string& path) {
  MHA_CHECK(FormatError, bytes.size() >= model::kLengthBytes, path, ": has ", bytes.size(), " bytes, a safetensors file has at least ",
            model::kLengthBytes);
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  const std::size_t rest = bytes.size() - model::kLengthBytes;
  MHA_CHECK(FormatError, length <= model::kMostHeaderBytes, path, ": header length at byte 0 is ", length,
            ", more than the format's limit of ", model::kMostHeaderBytes);
  MHA_CHECK(FormatError, length <= rest, path, ": header length at byte 0 is ", length, ", but only ", rest, " bytes follow");
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + model::kLengthBytes, static_cast<std::size_t>(length));
  MHA_CHECK(FormatError, text.starts_with('{'), path, ": the header at byte ", model::kLengthBytes, " does not begin with '{'");
  return text;
}

std::vector<Index> read_numbers(const JsonFields& fields, const std::string& key) {
  const Json& value = fields.at(key);
  if (!value.is_array()) fields.fail(key, core::join("is ", value.type_name(), ", a list of integers was expected"));
  std::vector<Index> numbers;
  numbers.reserve(value.size());
  for (const Json& item : value) {
    const auto number = model::to_integer(item, 0, kMostIndex);
    if (!number) {
      fields.fail(key, core::join("holds ", item.is_number() ? item.dump() : item.type_name(), ", integers from 0 to ", kMostIndex,
                                  " were expected"));
    }
    numbers.push_back(*number);
  }
  return numbers;
}

// Bytes the shape needs. Zeros are left out of the product, so that the strides of an empty tensor cannot overflow either.
std::size_t bytes_of(const Entry& entry, const JsonFields& fields) {
  Index elements = 1;
  bool empty = false;
  for (const Index size : entry.shape) {
    empty = empty || size == 0;
    if (size != 0 && __builtin_mul_overflow(elements, size, &elements)) fields.fail("shape", "its number of elements overflows 63 bits");
  }
  if (empty) return 0;
  Index bits = 0;
  if (__builtin_mul_overflow(elements, static_cast<Index>(entry.stored->bits), &bits))
    fields.fail("shape", "its size in bits overflows 63 bits");
  if (bits % 8 != 0) fields.fail("shape", core::join("its ", bits, " bits are no whole number of bytes"));
  return static_cast<std::size_t>(bits / 8);
}

Entry read_entry(const JsonFields& fields, std::size_t data_begin, std::size_t data_size) {
  for (const auto& [key, value] : fields.value().items()) {
    if (key != "dtype" && key != "shape" && key != "data_offsets") {
      throw FormatError(core::join(fields.file(), ": ", fields.place(), ": field ", printable(key), " is not part of the format"));
    }
  }
  Entry entry;
  const std::string dtype = fields.text("dtype");
  const auto stored =
      std::find_if(model::kStoredDTypes.begin(), model::kStoredDTypes.end(), [&](const auto& s) { return s.name == dtype; });
  if (stored == model::kStoredDTypes.end()) fields.fail("dtype", core::join(printable(dtype), " is not a dtype of the format"));
  entry.stored = &*stored;
  entry.shape = read_numbers(fields, "shape");
  const std::vector<Index> offsets = read_numbers(fields, "data_offsets");
  if (offsets.size() != 2) fields.fail("data_offsets", core::join("has ", offsets.size(), " numbers, 2 were expected"));
  entry.begin = static_cast<std::size_t>(offsets[0]);
  entry.end = static_cast<std::size_t>(offsets[1]);
  const std::string where = core::join("[", entry.begin, ", ", entry.end, ")");
  if (entry.begin > entry.end) fields.fail("data_offsets", where + " ends before it begins");
  if (entry.end > data_size) {
    fields.fail("data_offsets", core::join(where, " ends beyond the ", data_size, " bytes of data, which begin at byte ", data_begin));
  }
  const std::size_t needed = bytes_of(entry, fields);
  if (entry.end - entry.begin != needed) {
    fields.fail("data_offsets", core::join(where, " (byte ", data_begin + entry.begin, ") are ", entry.end - entry.begin,
                                           " bytes, its shape and dtype need ", needed));
  }
  return entry;
}

// Every byte of the data belongs to exactly one tensor.
void check_coverage(const Header& header, std::size_t data_size, const std::string& path) {
  std::vector<const Entries::value_type*> order;
  order.reserve(header.entries.size());
  for (const auto& item : header.entries) order.push_back(&item);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  std::size_t covered = 0;
  for (const auto* item : order) {
    const auto& [name, entry] = *item;
    MHA_CHECK(FormatError, entry.begin >= covered, path, ": tensor ", printable(name), " at byte ", header.data_begin + entry.begin,
              " overlaps the tensor that ends at byte ", header.data_begin + covered);
    MHA_CHECK(FormatError, entry.begin == covered, path, ": bytes ", header.data_begin + covered, " to ", header.data_begin + entry.begin,
              ", before tensor ", printable(name), ", belong to no tensor");
    covered = entry.end;
  }
  MHA_CHECK(FormatError, covered == data_size, path, ": bytes ", header.data_begin + covered, " to ", header.data_begin + data_size,
            " at the end belong to no tensor");
}

Header read_header(std::span<const std::byte> bytes, const std::string& path) {
  const std::string_view text = header_text(bytes, path);
  const Json json = model::parse_json(text, path, model::kLengthBytes, {.depth = 4});
  Header header;
  header.data_begin = model::kLengthBytes + text.size();
  const std::size_t data_size = bytes.size() - header.data_begin;
  const JsonFields entries(json, path);
  for (const auto& [name, value] : entries.value().items()) {
    if (name == model::kMetadataKey) {
      const JsonFields fields(value, path, name);
      for (const auto& [key, content] : value.items()) {
        MHA_CHECK(FormatError, content.is_string(), path, ": ", name, ": ", printable(key), " is ", content.type_name(),
                  ", a string was expected");
        header.metadata.emplace(key, content.get<std::string>());
      }
    } else {
      header.entries.emplace(name, read_entry(JsonFields(value, path, "tensor " + printable(name)), header.data_begin, data_size));
    }
  }
  check_coverage(header, data_size, path);
  return header;
}

// A bool that is neither 0 nor 1 would be undefined behaviour wherever it is read.
void check_bools(const Header& header, std::span<const std::byte> data, const std::string& path) {
  for (const auto& [name, entry] : header.entries) {
    if (entry.stored->dtype != DType::Bool) continue;
    const auto part = data.subspan(entry.begin, entry.end - entry.begin);
    const auto bad = std::find_if(part.begin(), part.end(), [](std::byte b) { return std::to_integer<int>(b) > 1; });
    MHA_CHECK(FormatError, bad == part.end(), path, ": tensor ", printable(name), ": byte ",
              header.data_begin + entry.begin + static_cast<std::size_t>(bad - part.begin()), " is ", std::to_integer<int>(*bad),
              ", a bool is 0 or 1");
  }
}

}  // namespace

struct SafetensorsFile::Impl {
  explicit Impl(const std::string& file_path) : path(file_path), file(file_path), header(read_header(file.bytes(), file_path)) {
    check_bools(header, data(), path);
  }

  std::span<const std::byte> data() const { return file.bytes().subspan(header.data_begin); }

  const Entry& find(const std::string& name) const {
    const auto place = header.entries.find(name);
    MHA_CHECK(FormatError, place != header.entries.end(), path, ": has no tensor ", printable(name));
    return place->second;
  }

  std::string path;
  core::MappedFile file;
  Header header;
  mutable std::mutex mutex;  // guards aligned_copies
  mutable std::map<std::string, Tensor> aligned_copies;
};

SafetensorsFile::SafetensorsFile(const std::string& path) : impl_(std::make_unique<Impl>(path)) {}
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;
SafetensorsFile& SafetensorsFile::operator=(SafetensorsFile&&) noexcept = default;
SafetensorsFile::~SafetensorsFile() = default;

const std::string& SafetensorsFile::path() const { return impl_->path; }

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : impl_->header.entries) names.push_back(name);
  return names;
}

bool SafetensorsFile::contains(const std::string& name) const { return impl_->header.entries.contains(name); }

SafetensorsFile::Info SafetensorsFile::info(const std::string& name) const {
  const Entry& entry = impl_->find(name);
  return {.dtype = std::string(entry.stored->name), .shape = entry.shape, .bytes = entry.end - entry.begin};
}

ConstTensorView SafetensorsFile::tensor(const std::string& name) const {
  const Entry& entry = impl_->find(name);
  MHA_CHECK(DTypeError, entry.stored->dtype.has_value(), impl_->path, ": tensor ", printable(name), " is ", entry.stored->name,
            "; only F32, F64, BF16, F16, BOOL and I64 can be used");
  MHA_CHECK(ShapeError, entry.shape.size() <= static_cast<std::size_t>(Dims::kMaxRank), impl_->path, ": tensor ", printable(name),
            " has rank ", entry.shape.size(), ", at most ", Dims::kMaxRank, " can be used");
  const DType dtype = *entry.stored->dtype;
  Dims shape;
  switch (entry.shape.size()) {
    case 1:
      shape = {entry.shape[0]};
      break;
    case 2:
      shape = {entry.shape[0], entry.shape[1]};
      break;
    case 3:
      shape = {entry.shape[0], entry.shape[1], entry.shape[2]};
      break;
    case 4:
      shape = {entry.shape[0], entry.shape[1], entry.shape[2], entry.shape[3]};
      break;
    default:
      break;
  }
  if (entry.begin == entry.end) {  // no element, but a view that is not the absent one
    alignas(64) static constexpr std::byte kNothing{};
    return {&kNothing, dtype, shape};
  }
  const std::byte* const data = impl_->data().data() + entry.begin;
  if (reinterpret_cast<std::uintptr_t>(data) % size_of(dtype) == 0) return {data, dtype, shape};
  const std::lock_guard lock(impl_->mutex);
  const auto [place, is_new] = impl_->aligned_copies.try_emplace(name);
  if (is_new) {
    Tensor copy(dtype, shape);
    std::memcpy(copy.view().data, data, entry.end - entry.begin);
    place->second = std::move(copy);
  }
  return std::as_const(place->second).view();
}

const std::map<std::string, std::string>& SafetensorsFile::metadata() const { return impl_->header.metadata; }

}  // namespace mha
