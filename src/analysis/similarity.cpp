// Linear CKA of all pairs of heads by their value_dim x value_dim products, in double; each pair is one task's.
#include "mha/analysis/similarity.h"

#include <cmath>

#include "analysis/capture_rows.h"
#include "core/check.h"
#include "core/executor.h"
#include "mha/error.h"

namespace mha {
namespace {

/// One head's outputs over all rows, columns centred, [rows, dim].
struct Outputs {
  Index dim = 0;
  std::vector<double> values;

  const double* row(Index row) const { return values.data() + row * dim; }
};

void append_text(const CapturedLayer& layer, Index head, Outputs& outputs) {
  MHA_CHECK(ShapeError, layer.head_out && layer.head_out.rank() == 4, "head_similarities: the capture has no head_out");
  const ConstTensorView& out = layer.head_out;
  MHA_CHECK(ShapeError, out.size(0) >= 1 && out.size(1) == layer.q_len() && out.size(2) == layer.heads(), "head_similarities: head_out is ",
            to_string(out.shape), " for ", layer.heads(), " heads of ", layer.q_len(), " rows");
  MHA_CHECK(ShapeError, outputs.values.empty() || outputs.dim == out.size(3), "head_similarities: outputs of ", outputs.dim, " and of ",
            out.size(3), " numbers");
  outputs.dim = out.size(3);
  const std::size_t start = outputs.values.size();
  outputs.values.resize(start + static_cast<std::size_t>(out.size(1) * out.size(3)));
  copy(out.slice(0, 0, 1).slice(2, head, head + 1), TensorView(outputs.values.data() + start, {1, out.size(1), 1, out.size(3)}));
}

/// Takes the mean off every column. A column of equal numbers becomes exactly 0, whatever its mean is rounded to.
void centre(Outputs& outputs, Index rows) {
  for (Index d = 0; d < outputs.dim; ++d) {
    double sum = 0.0;
    const double first = rows > 0 ? outputs.values[static_cast<std::size_t>(d)] : 0.0;
    for (Index row = 0; row < rows; ++row) sum += outputs.row(row)[d] - first;
    const double mean = sum / static_cast<double>(rows);
    for (Index row = 0; row < rows; ++row) {
      double& value = outputs.values[static_cast<std::size_t>(row * outputs.dim + d)];
      value = value - first - mean;
    }
  }
}

/// frob(Y'X)^2; `product` has room for it.
double squared_product(const Outputs& x, const Outputs& y, Index rows, std::vector<double>& product) {
  std::fill_n(product.begin(), x.dim * y.dim, 0.0);
  for (Index row = 0; row < rows; ++row) {
    const double* of_y = y.row(row);
    for (Index i = 0; i < x.dim; ++i) {
      const double of_x = x.row(row)[i];
      double* out = product.data() + i * y.dim;
      for (Index j = 0; j < y.dim; ++j) out[j] += of_x * of_y[j];
    }
  }
  double sum = 0.0;
  for (Index i = 0; i < x.dim * y.dim; ++i) sum += product[static_cast<std::size_t>(i)] * product[static_cast<std::size_t>(i)];
  return sum;
}

}  // namespace

HeadMatrix head_similarities(std::span<const Capture> texts, Workspace& workspace) {
  HeadMatrix alike = analysis::matrix_for(texts, "head_similarities");
  std::vector<Outputs> outputs(alike.heads.size());
  for (const Capture& text : texts) {
    alike.rows += analysis::self_length(text, "head_similarities");
    for (std::size_t h = 0; h < outputs.size(); ++h) {
      append_text(analysis::layer_of(text, alike.heads[h]), alike.heads[h].head, outputs[h]);
    }
  }
  double flops = 0.0;
  Index widest = 0;
  for (Outputs& output : outputs) {
    centre(output, alike.rows);
    widest = std::max(widest, output.dim);
    flops += static_cast<double>(alike.size() * alike.rows * output.dim * output.dim);
  }
  const int workers = core::workers_for(workspace.executor(), alike.size(), flops);
  std::vector<std::vector<double>> products(static_cast<std::size_t>(workers),
                                            std::vector<double>(static_cast<std::size_t>(widest * widest)));
  core::run_tasks(workspace.executor(), workers, alike.size(), [&](int worker, Index a) {
    for (Index b = a; b < alike.size(); ++b) {
      alike.values[static_cast<std::size_t>(a * alike.size() + b)] =
          squared_product(outputs[static_cast<std::size_t>(a)], outputs[static_cast<std::size_t>(b)], alike.rows,
                          products[static_cast<std::size_t>(worker)]);
    }
  });
  std::vector<double> own;
  for (Index a = 0; a < alike.size(); ++a) own.push_back(std::sqrt(alike.at(a, a)));
  for (std::size_t a = 0; a < own.size(); ++a) {
    for (std::size_t b = a; b < own.size(); ++b) alike.values[a * own.size() + b] /= own[a] * own[b];
  }
  analysis::mirror(alike);
  return alike;
}

}  // namespace mha
