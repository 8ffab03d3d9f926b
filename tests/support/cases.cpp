// Builds the list of cases.
#include "support/cases.h"

#include <string>

namespace mha::test {
namespace {

using Content = BiasData::Content;

void add(std::vector<Problem>& list, std::string name, Problem problem) {
  problem.name = std::move(name);
  problem.seed = 1000 + list.size();
  list.push_back(std::move(problem));
}

void add_masks(std::vector<Problem>& list) {
  for (const Mask& mask : example_masks()) {
    const std::string text = "mask/" + to_string(mask);
    add(list, text + "/square", {.q_len = 37, .kv_len = 37, .head_dim = 8, .value_dim = 8, .mask = mask});
    add(list, text + "/wide", {.q_len = 13, .kv_len = 41, .head_dim = 8, .value_dim = 8, .mask = mask, .align = Align::BottomRight});
    add(list, text + "/tall", {.q_len = 41, .kv_len = 13, .head_dim = 8, .value_dim = 8, .mask = mask, .align = Align::BottomRight});
    add(list, text + "/tall_top", {.q_len = 41, .kv_len = 13, .head_dim = 8, .value_dim = 8, .mask = mask, .align = Align::TopLeft});
  }
}

void add_data_masks(std::vector<Problem>& list) {
  int number = 0;
  for (const BiasData& bias : example_biases()) {
    const std::string text = "bias/" + std::to_string(number++);
    const DType dtype = bias.dtype == DType::F64 ? DType::F64 : DType::F32;  // an f64 bias goes with f64 tensors only
    add(list, text + "/plain", {.q_len = 19, .kv_len = 35, .group = 2, .dtype = dtype, .align = Align::TopLeft, .bias = bias});
    add(list, text + "/many_heads",
        {.q_len = 5, .kv_len = 140, .kv_heads = 1, .group = 19, .dtype = dtype, .align = Align::BottomRight, .bias = bias});
    add(list, text + "/causal", {.q_len = 33, .kv_len = 33, .dtype = dtype, .mask = causal(), .bias = bias});
  }
  for (unsigned axes = 0; axes < 16; ++axes) {
    const Broadcast broadcast = {(axes & 1) != 0, (axes & 2) != 0, (axes & 4) != 0, (axes & 8) != 0};
    const AllowedData allowed = {true, broadcast, 0.6};
    const std::string text = "allowed/" + std::to_string(axes);
    add(list, text, {.q_len = 21, .kv_len = 50, .group = 2, .allowed = allowed});
    add(list, text + "/window", {.q_len = 35, .kv_len = 35, .mask = window(9, 0, 2), .allowed = allowed});
  }
  add(list, "allowed/sparse", {.q_len = 40, .kv_len = 70, .allowed = {true, {}, 0.03}});
  add(list, "allowed/nothing", {.q_len = 9, .kv_len = 20, .allowed = {true, {}, 0.0}});
  add(list, "kv_lengths/plain", {.batch = 4, .q_len = 20, .kv_len = 30, .kv_lengths = {30, 17, 1, 0}});
  add(list, "kv_lengths/causal",
      {.batch = 4, .q_len = 20, .kv_len = 30, .mask = causal(), .align = Align::BottomRight, .kv_lengths = {30, 17, 1, 0}});
  add(list, "kv_lengths/top",
      {.batch = 3, .q_len = 20, .kv_len = 30, .mask = causal(), .align = Align::TopLeft, .kv_lengths = {30, 17, 0}});
  add(list, "everything",
      {.batch = 3,
       .q_len = 34,
       .kv_len = 51,
       .kv_heads = 2,
       .group = 3,
       .head_dim = 24,
       .value_dim = 17,
       .mask = causal() & window(20, 0, 3) & segments({0, 7, 30}),
       .align = Align::BottomRight,
       .bias = {Content::SomeHidden, {.batch = true}, DType::F32},
       .allowed = {true, {.heads = true}, 0.8},
       .kv_lengths = {51, 40, 13},
       .scale = 0.3F,
       .dropout = {0.2F, 5}});
}

void add_storage(std::vector<Problem>& list) {
  for (const DType dtype : {DType::F32, DType::Bf16, DType::F16, DType::F64}) {
    for (const Layout layout : kLayouts) {
      const std::string text = std::string("storage/") + name_of(dtype) + "/" + name_of(layout);
      add(list, text,
          {.q_len = 35, .kv_len = 35, .group = 2, .head_dim = 20, .value_dim = 20, .dtype = dtype, .layout = layout, .mask = causal()});
      add(list, text + "/odd", {.q_len = 18, .kv_len = 43, .group = 3, .head_dim = 33, .value_dim = 7, .dtype = dtype, .layout = layout});
      add(list, text + "/one_query",
          {.q_len = 1, .kv_len = 67, .kv_heads = 1, .group = 4, .head_dim = 64, .value_dim = 64, .dtype = dtype, .layout = layout});
    }
  }
}

void add_sizes(std::vector<Problem>& list) {
  for (const Index q_len : {1, 2, 7, 8, 9, 15, 16, 17, 47, 48, 49, 63, 64, 65, 97, 193}) {
    const std::string text = "q_len/" + std::to_string(q_len);
    add(list, text, {.batch = 1, .q_len = q_len, .kv_len = 29});
    add(list, text + "/causal", {.batch = 1, .q_len = q_len, .kv_len = q_len, .group = 3, .mask = causal()});
  }
  for (const Index kv_len : {1, 2, 7, 8, 9, 63, 64, 65, 127, 128, 129, 255, 256, 257, 300, 521}) {
    const std::string text = "kv_len/" + std::to_string(kv_len);
    add(list, text, {.batch = 1, .q_len = 17, .kv_len = kv_len});
    add(list, text + "/one_query", {.q_len = 1, .kv_len = kv_len, .group = 2});
    add(list, text + "/window",
        {.batch = 1, .q_len = kv_len, .kv_len = kv_len, .kv_heads = 1, .head_dim = 4, .value_dim = 4, .mask = window(33, 5, 2)});
  }
  for (const Index head_dim :
       {1, 2, 3, 5, 7, 8, 9, 13, 15, 16, 17, 31, 32, 33, 37, 63, 64, 65, 96, 127, 128, 129, 192, 256, 257, 512, 1024}) {
    const std::string text = "head_dim/" + std::to_string(head_dim);
    add(list, text, {.batch = 1, .q_len = 18, .kv_len = 23, .head_dim = head_dim, .value_dim = head_dim});
    add(list, text + "/value_dim_5", {.batch = 1, .q_len = 7, .kv_len = 23, .kv_heads = 1, .head_dim = head_dim, .value_dim = 5});
    add(list, text + "/head_dim_3", {.batch = 1, .q_len = 7, .kv_len = 23, .kv_heads = 1, .head_dim = 3, .value_dim = head_dim});
  }
  for (const Index group : {1, 2, 3, 4, 5, 7, 8, 16, 71}) {
    const std::string text = "group/" + std::to_string(group);
    add(list, text, {.batch = 1, .q_len = 11, .kv_len = 19, .kv_heads = 3, .group = group});
    add(list, text + "/one_query",
        {.q_len = 1, .kv_len = 19, .kv_heads = 2, .group = group, .mask = causal(), .align = Align::BottomRight});
  }
  for (const float scale : {0.0F, 1.0F, -0.5F, 0.01F, 3.0F}) {
    add(list, "scale/" + std::to_string(scale), {.q_len = 18, .kv_len = 23, .head_dim = 16, .scale = scale});
  }
  for (const float cap : {0.3F, 2.0F, 30.0F}) {
    const std::string text = "softcap/" + std::to_string(cap);
    add(list, text, {.q_len = 35, .kv_len = 150, .group = 2, .head_dim = 16, .scale = 1.0F, .softcap = cap});
    add(list, text + "/causal",
        {.q_len = 35, .kv_len = 35, .mask = causal(), .bias = {Content::SomeHidden, {}, DType::F32}, .softcap = cap});
  }
  for (const float sink : {-3.0F, 0.0F, 20.0F}) {
    const std::string text = "sinks/" + std::to_string(sink);
    add(list, text, {.q_len = 35, .kv_len = 150, .group = 3, .first_sink = sink});
    add(list, text + "/empty_rows",
        {.q_len = 50, .kv_len = 20, .mask = causal() & window(3), .align = Align::BottomRight, .first_sink = sink});
  }
  for (const float probability : {0.1F, 0.5F, 1.0F}) {
    add(list, "dropout/" + std::to_string(probability),
        {.q_len = 35, .kv_len = 35, .group = 2, .mask = causal(), .dropout = {probability, 99}});
  }
}

}  // namespace

std::vector<Mask> example_masks() {
  std::vector<Mask> masks = Alternatives<Rule>::all_examples();
  masks.emplace_back();
  masks.push_back(causal() & window(4));
  masks.push_back(causal() & segments({0, 9, 20}));
  masks.push_back(causal() & chunk(8));
  masks.push_back(window(7, 7) & segments({0, 9, 20}));
  masks.push_back(window(5, 0, 3) & segments({0, 2, 20}));
  masks.push_back(window(5, 0, 3) & window(9, 0, 5));
  masks.push_back(window(2, 0, 1) & window(9, 4, 3) & window(20, 0, 12));
  masks.push_back(prefix(10) & window(6, 3));
  masks.push_back(prefix(4) & segments({0, 13}) & chunk(9));
  return masks;
}

std::vector<BiasData> example_biases() { return Alternatives<Bias>::all_examples(); }

const std::vector<Problem>& cases() {
  static const std::vector<Problem> kCases = [] {
    std::vector<Problem> list;
    add_masks(list);
    add_data_masks(list);
    add_storage(list);
    add_sizes(list);
    return list;
  }();
  return kCases;
}

}  // namespace mha::test
