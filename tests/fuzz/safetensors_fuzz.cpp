// Any bytes as a safetensors file: an mha::Error, or a file whose every tensor can be read in full and whose layer, if it has one, loads
// and computes. What the header's documentation promises is required of all that is accepted.
#include <algorithm>
#include <utility>

#include "fuzz/fuzz.h"
#include "mha/error.h"
#include "mha/layer.h"
#include "mha/model/layer_file.h"
#include "mha/model/safetensors.h"

namespace mha::test {
namespace {

std::span<const std::byte> bytes_of(const ConstTensorView& view) {
  return {static_cast<const std::byte*>(view.data), static_cast<std::size_t>(element_count(view.shape)) * size_of(view.dtype)};
}

void read_tensors(const SafetensorsFile& file) {
  for (const std::string& name : file.names()) {
    require(file.contains(name), "a name that is listed is contained");
    const SafetensorsFile::Info info = file.info(name);
    try {
      const ConstTensorView view = file.tensor(name);
      require(view && std::equal(view.shape.begin(), view.shape.end(), info.shape.begin(), info.shape.end()), "the view has the shape");
      require(bytes_of(view).size() == info.bytes, "the view has the bytes");
      require(reinterpret_cast<std::uintptr_t>(view.data) % size_of(view.dtype) == 0, "the view is aligned");
      require(file.tensor(name).data == view.data, "the view stays where it is");
      touch(bytes_of(view));
    } catch (const DTypeError&) {
    } catch (const ShapeError&) {
      require(info.shape.size() > static_cast<std::size_t>(Dims::kMaxRank), "a shape is refused for its rank alone");
    }
  }
}

// A config as the matrices of our layout, or torch's, say it; where they say nothing sensible it is a config that must be refused.
MhaConfig config_of(const SafetensorsFile& file) {
  const auto size = [&](const char* name, std::size_t axis, Index fallback) {
    if (!file.contains(name)) return fallback;
    const SafetensorsFile::Info info = file.info(name);
    return axis < info.shape.size() ? info.shape[axis] : fallback;
  };
  MhaConfig config;
  config.bias = file.contains("bq") || file.contains("in_proj_bias");
  config.learned_key = file.contains("learned_k") || file.contains("bias_k");
  if (file.contains("wq")) {
    config.d_model = size("wq", 1, 0);
    config.kv_heads = 1;
    config.head_dim = size("wk", 0, 0);
    config.heads = config.head_dim > 0 ? size("wq", 0, 0) / config.head_dim : 0;
  } else {
    config.d_model = size("out_proj.weight", 0, 0);
    config.heads = config.d_model % 2 == 0 ? 2 : 1;
  }
  config.key_width = size("wk", 1, size("k_proj_weight", 1, config.d_model));
  config.value_width = size("wv", 1, size("v_proj_weight", 1, config.d_model));
  return config;
}

void read_layer(const SafetensorsFile& file) {
  const MhaConfig config = config_of(file);
  const MhaParameters parameters = load_layer(file, "", config);
  const MultiHeadAttention layer(config, parameters.view());
  for (const Tensor* tensor : {&parameters.wq, &parameters.wk, &parameters.wv, &parameters.wo}) {
    touch(bytes_of(std::as_const(*tensor).view()));
  }
}

}  // namespace
}  // namespace mha::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  mha::test::set_file({data, size});
  try {
    const mha::SafetensorsFile file("fuzz");
    mha::test::read_tensors(file);
    for (const auto& [key, text] : file.metadata()) {
      mha::test::touch(std::as_bytes(std::span(key)));
      mha::test::touch(std::as_bytes(std::span(text)));
    }
    mha::test::read_layer(file);
  } catch (const mha::Error& error) {
    mha::test::require_line(error);
  }
  return 0;
}
