// What reader and writer of safetensors share: the format's dtypes and the layout of the file
// (8 bytes header length, little-endian; the header, JSON; the data).
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <optional>
#include <string_view>

#include "mha/dtype.h"

namespace mha::model {

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian and is used in place");

inline constexpr std::size_t kLengthBytes = 8;
inline constexpr std::size_t kMostHeaderBytes = 100'000'000;  // the format's own limit
inline constexpr std::string_view kMetadataKey = "__metadata__";

struct StoredDType {
  std::string_view name;
  std::size_t bits;
  std::optional<DType> dtype;  // absent: listed, but not computed with
};

inline constexpr std::array<StoredDType, 22> kStoredDTypes = {{
    {"F32", 32, DType::F32},      {"F64", 64, DType::F64},          {"BF16", 16, DType::Bf16},        {"F16", 16, DType::F16},
    {"BOOL", 8, DType::Bool},     {"I64", 64, DType::I64},          {"U64", 64, std::nullopt},        {"I32", 32, std::nullopt},
    {"U32", 32, std::nullopt},    {"I16", 16, std::nullopt},        {"U16", 16, std::nullopt},        {"I8", 8, std::nullopt},
    {"U8", 8, std::nullopt},      {"C64", 64, std::nullopt},        {"F8_E4M3", 8, std::nullopt},     {"F8_E5M2", 8, std::nullopt},
    {"F8_E8M0", 8, std::nullopt}, {"F8_E4M3FNUZ", 8, std::nullopt}, {"F8_E5M2FNUZ", 8, std::nullopt}, {"F6_E2M3", 6, std::nullopt},
    {"F6_E3M2", 6, std::nullopt}, {"F4", 4, std::nullopt},
}};

}  // namespace mha::model
