// Our side of bench/rivals, and both of bench/compare: the library behind extern "C" functions that Python's ctypes can call
// (bench/against/ours.py). Each turns plain structs into the library's own arguments and makes one public call; nothing is computed here.
// Functions that can fail return 0 or null and leave the reason in rivals_error(). One thread at a time.
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>

#include "mha/mha.h"
#include "mha/model/transformer.h"

namespace {

std::string last_error;

/// Runs `body`; its result, or `failed` with the reason kept.
template <class T, class Body>
T guarded(T failed, const Body& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    last_error = error.what();
    return failed;
  }
}

}  // namespace

extern "C" {

/// A strided tensor as ours.py describes it; data null: absent.
struct RivalsView {
  void* data;
  std::int64_t dtype;  // mha::DType
  std::int64_t rank;
  std::int64_t shape[4];
  std::int64_t strides[4];
};

struct RivalsAttention {
  RivalsView q, k, v, out;  // [batch, length, heads, dim]
  RivalsView allowed;       // bool, or absent
  std::int64_t causal;      // bottom-right
  std::int64_t window;      // keys a row sees, its own included; 0: no limit
};

struct RivalsLayer {
  std::int64_t d_model, heads, causal;
  RivalsView wq, wk, wv, wo, bq, bk, bv, bo;
};

}  // extern "C"

namespace {

mha::Dims dims(const std::int64_t (&values)[4], std::int64_t rank) {
  mha::Dims result;
  switch (rank) {
    case 1:
      result = {values[0]};
      break;
    case 2:
      result = {values[0], values[1]};
      break;
    case 3:
      result = {values[0], values[1], values[2]};
      break;
    case 4:
      result = {values[0], values[1], values[2], values[3]};
      break;
    default:
      throw std::invalid_argument("a view of rank " + std::to_string(rank) + ": 1 to 4 are possible");
  }
  return result;
}

mha::TensorView view(const RivalsView& from) {
  if (from.data == nullptr) return {};
  return {from.data, static_cast<mha::DType>(from.dtype), dims(from.shape, from.rank), dims(from.strides, from.rank)};
}

mha::Mask mask(std::int64_t causal, std::int64_t window) {
  mha::Mask result = causal != 0 ? mha::causal() : mha::Mask{};
  return window > 0 ? result & mha::window(window - 1) : result;
}

}  // namespace

extern "C" {

const char* rivals_error() { return last_error.c_str(); }

/// The ISA in use, or null.
const char* rivals_isa() {
  return guarded<const char*>(nullptr, [] { return mha::current_isa().data(); });
}

/// GFLOP/s of the calling core right now, from about 2 ms; 0 for the reference.
double rivals_fma_peak() {
  return guarded(0.0, [] { return mha::fma_peak(mha::current_isa()); });
}

/// GB/s that the workspace's threads together read `data` with; 0 where that cannot be measured.
double rivals_read_bandwidth(const void* data, std::int64_t bytes, const mha::Workspace* workspace) {
  return guarded(0.0, [&] {
    return mha::read_bandwidth({static_cast<const std::byte*>(data), static_cast<std::size_t>(bytes)}, workspace->executor());
  });
}

/// Executor and scratch of all later calls: the calling thread alone, or every core the process may use, which must be `threads`.
mha::Workspace* rivals_workspace(int threads) {
  return guarded<mha::Workspace*>(nullptr, [&] {
    const mha::Executor executor = threads == 1 ? mha::serial_executor() : mha::default_executor();
    if (executor.concurrency != threads) {
      throw std::invalid_argument("the default executor has " + std::to_string(executor.concurrency) + " threads, asked for were " +
                                  std::to_string(threads));
    }
    return new mha::Workspace(executor);
  });
}

/// Scratch memory that it holds.
std::int64_t rivals_workspace_bytes(const mha::Workspace* workspace) { return static_cast<std::int64_t>(workspace->bytes()); }

void rivals_free_workspace(mha::Workspace* workspace) { delete workspace; }

int rivals_attention(const RivalsAttention* call, mha::Workspace* workspace) {
  return guarded(0, [&] {
    const mha::AttentionSpec spec{.mask = mask(call->causal, call->window), .align = mha::Align::BottomRight};
    const mha::AttentionInputs inputs{.q = view(call->q), .k = view(call->k), .v = view(call->v), .allowed = view(call->allowed)};
    mha::attention_forward(spec, inputs, {.out = view(call->out)}, *workspace);
    return 1;
  });
}

mha::MultiHeadAttention* rivals_layer(const RivalsLayer* from) {
  return guarded<mha::MultiHeadAttention*>(nullptr, [&] {
    const mha::MhaConfig config{
        .d_model = from->d_model, .heads = from->heads, .attention = {.mask = mask(from->causal, 0), .align = mha::Align::BottomRight}};
    const mha::MhaWeights weights{.wq = view(from->wq),
                                  .wk = view(from->wk),
                                  .wv = view(from->wv),
                                  .wo = view(from->wo),
                                  .bq = view(from->bq),
                                  .bk = view(from->bk),
                                  .bv = view(from->bv),
                                  .bo = view(from->bo)};
    return new mha::MultiHeadAttention(config, weights);
  });
}

int rivals_layer_forward(const mha::MultiHeadAttention* layer, const RivalsView* x, const RivalsView* y, mha::Workspace* workspace) {
  return guarded(0, [&] {
    layer->forward({.x = view(*x)}, {.y = view(*y)}, *workspace);
    return 1;
  });
}

void rivals_free_layer(mha::MultiHeadAttention* layer) { delete layer; }

mha::Transformer* rivals_encoder(const char* folder) {
  return guarded<mha::Transformer*>(nullptr, [&] { return new mha::Transformer(mha::Transformer::load(folder)); });
}

void rivals_free_encoder(mha::Transformer* encoder) { delete encoder; }

/// `ids` [batch, length] i64, `hidden` [batch, length, d_model] f32.
int rivals_encoder_forward(const mha::Transformer* encoder, const RivalsView* ids, const RivalsView* hidden, mha::Workspace* workspace) {
  return guarded(0, [&] {
    const mha::TensorView from = view(*ids);
    const std::span<const mha::Index> flat(from.as<mha::Index>(), static_cast<std::size_t>(mha::element_count(from.shape)));
    encoder->forward({.ids = flat, .batch = from.size(0)}, view(*hidden), *workspace);
    return 1;
  });
}

}  // extern "C"
