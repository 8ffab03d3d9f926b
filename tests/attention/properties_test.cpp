// What must hold whatever the numbers are: sums of weights, constant values, unseen keys, permuted keys, shifted biases, repeated heads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "attention/determinism.h"
#include "support/gen.h"
#include "support/isa_test.h"
#include "support/near.h"

namespace mha::test {
namespace {

class PropertiesTest : public IsaTest {};
INSTANTIATE_TEST_SUITE_P(Isa, PropertiesTest, testing::ValuesIn(all_isas()), isa_name);

/// Sum of kv_len weights of relative error as in element_tolerance (scores up to 16: see some_problem).
double sum_tolerance(const Problem& p) { return element_tolerance(p.head_dim, p.kv_len, 16, DType::F32); }

Problem some_problem() {
  Problem p = *gen::problem({DType::F32});
  p.head_dim = std::min<Index>(p.head_dim, 40);
  p.value_dim = std::min<Index>(p.value_dim, 40);
  p.scale.reset();
  p.dropout = {};
  p.first_sink.reset();  // these properties are about rows that keep all their weight
  return p;
}

bool row_is_empty(const ConstTensorView& lse, Index b, Index h, Index q) { return element(lse, b, h, q) == -HUGE_VAL; }

TEST_P(PropertiesTest, EveryRowOfWeightsSumsToOneOrIsZero) {
  check("sum of weights under " + GetParam(), [] {
    const Problem p = some_problem();
    const Instance instance(p);
    const Results got = run(instance);
    for_each_position(got.lse().shape, [&](Index b, Index h, Index q, Index) {
      double sum = 0;
      for (Index k = 0; k < p.kv_len; ++k) {
        const double weight = element(got.weights(), b, h, q, k);
        RC_ASSERT(weight >= 0);
        sum += weight;
      }
      if (row_is_empty(got.lse(), b, h, q)) {
        RC_ASSERT(sum == 0);
      } else {
        RC_ASSERT(std::abs(sum - 1) <= sum_tolerance(p));
      }
    });
  });
}

TEST_P(PropertiesTest, ConstantValuesComeBack) {
  check("V = 1 gives out = 1 under " + GetParam(), [] {
    const Problem p = some_problem();
    Instance instance(p);
    fill(instance.v(), 1);
    const Results got = run(instance);
    for_each_position(got.out().shape, [&](Index b, Index q, Index h, Index d) {
      const double out = element(got.out(), b, q, h, d);
      RC_ASSERT(std::abs(out - (row_is_empty(got.lse(), b, h, q) ? 0 : 1)) <= sum_tolerance(p));
    });
  });
}

TEST_P(PropertiesTest, FutureKeysDoNotMatterUnderCausal) {
  check("row t does not change, by a single bit, with keys and values after t, under " + GetParam(), [] {
    Problem p = some_problem();
    p.mask = causal();
    p.align = Align::BottomRight;
    p.layout = Layout::Dense;
    p.kv_lengths.clear();
    p.q_len = std::max<Index>(p.q_len, 1);
    p.kv_len = p.q_len + 3;
    Instance before(p);
    Instance after(p);
    const Index query = *rc::gen::inRange<Index>(0, p.q_len);
    for (Index b = 0; b < p.batch; ++b) {
      for (Index key = query + 3 + 1; key < p.kv_len; ++key) {
        for (Index h = 0; h < p.kv_heads; ++h) {
          for (Index d = 0; d < p.head_dim; ++d) set_element(after.k(), b, key, h, d, 100);
          for (Index d = 0; d < p.value_dim; ++d) set_element(after.v(), b, key, h, d, d % 2 == 0 ? HUGE_VAL : NAN);
        }
      }
    }
    const Results x = run(before);
    const Results y = run(after);
    RC_ASSERT(bitwise_equal(x.out().slice(1, 0, query + 1), y.out().slice(1, 0, query + 1)));
    RC_ASSERT(bitwise_equal(x.lse().slice(2, 0, query + 1), y.lse().slice(2, 0, query + 1)));
  });
}

TEST_P(PropertiesTest, PermutedKeysGiveTheSameToRounding) {
  check("k and v permuted together, no mask, under " + GetParam(), [] {
    Problem p = some_problem();
    p.mask = {};
    p.bias = {};
    p.allowed = {};
    p.kv_lengths.clear();
    p.layout = Layout::Dense;
    p.kv_len = std::max<Index>(p.kv_len, 1);
    Instance plain(p);
    Instance permuted(p);
    std::vector<Index> order(static_cast<std::size_t>(p.kv_len));
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<Index>(i);
    std::mt19937_64 random(p.seed);
    std::shuffle(order.begin(), order.end(), random);
    for (Index k = 0; k < p.kv_len; ++k) {
      const Index from = order[static_cast<std::size_t>(k)];
      copy(plain.k().slice(1, from, from + 1), permuted.k().slice(1, k, k + 1));
      copy(plain.v().slice(1, from, from + 1), permuted.v().slice(1, k, k + 1));
    }
    RC_ASSERT(mismatch(plain, run(permuted, {.lse = true, .weights = false})) == "");
  });
}

TEST_P(PropertiesTest, AConstantAddedToABiasRowChangesNothing) {
  check("softmax is shift-invariant, under " + GetParam(), [] {
    Problem p = some_problem();
    p.bias = {BiasData::Content::SomeHidden, {}, DType::F32};
    p.layout = Layout::Dense;
    Instance plain(p);
    Instance shifted(p);
    for_each_position(shifted.bias().shape, [&](Index b, Index h, Index q, Index k) {
      set_element(shifted.bias(), b, h, q, k, element(plain.bias(), b, h, q, k) + static_cast<double>(q % 5) - 2);
    });
    const Results x = run(plain);
    const Results y = run(shifted);
    for_each_position(x.out().shape, [&](Index b, Index q, Index h, Index d) {
      // the shift costs each score one more rounding at magnitude 16 or so; |out| is at most max |v|, about 5
      RC_ASSERT(std::abs(element(x.out(), b, q, h, d) - element(y.out(), b, q, h, d)) <= 5 * sum_tolerance(p));
    });
    for_each_position(x.lse().shape, [&](Index b, Index h, Index q, Index) {
      RC_ASSERT(row_is_empty(x.lse(), b, h, q) == row_is_empty(y.lse(), b, h, q));
      if (row_is_empty(x.lse(), b, h, q)) return;
      const double moved = element(y.lse(), b, h, q) - element(x.lse(), b, h, q);
      RC_ASSERT(std::abs(moved - (static_cast<double>(q % 5) - 2)) <= 2 * sum_tolerance(p));
    });
  });
}

/// Bitwise where both take the same path: a group can be too many rows for the one made for few.
TEST_P(PropertiesTest, GroupedHeadsAreRepeatedHeadsBitwise) {
  check("GQA equals attention with k and v repeated, under " + GetParam(), [] {
    Problem grouped = some_problem();
    grouped.layout = Layout::Dense;
    grouped.group = *rc::gen::inRange<Index>(2, 6);
    Problem repeated = grouped;
    repeated.kv_heads = grouped.heads();
    repeated.group = 1;
    Instance x(grouped);
    Instance y(repeated);
    copy(x.q(), y.q());
    if (x.bias()) copy(x.bias(), y.bias());
    if (x.allowed()) copy(x.allowed(), y.allowed());
    for (Index h = 0; h < repeated.kv_heads; ++h) {
      const Index from = h / grouped.group;
      copy(x.k().slice(2, from, from + 1), y.k().slice(2, h, h + 1));
      copy(x.v().slice(2, from, from + 1), y.v().slice(2, h, h + 1));
    }
    const Results a = run(x);
    const Results b = run(y);
    if (plan_of(x).few_rows != plan_of(y).few_rows) {
      RC_ASSERT(mismatch(x, a) == "");
      RC_ASSERT(mismatch(y, b) == "");
      return;
    }
    RC_ASSERT(bitwise_equal(a.out(), b.out()));
    RC_ASSERT(bitwise_equal(a.lse(), b.lse()));
    RC_ASSERT(bitwise_equal(a.weights(), b.weights()));
  });
}

TEST_P(PropertiesTest, LayoutsGiveTheSameBits) {
  check("the same numbers in another layout, under " + GetParam(), [] {
    Problem p = some_problem();
    p.dtype = *rc::gen::element(DType::F32, DType::Bf16);
    p.layout = Layout::Dense;
    const Instance dense(p);
    const Results expected = run(dense);
    for (const Layout layout : {Layout::HeadsFirst, Layout::FusedQkv, Layout::Strided}) {
      p.layout = layout;
      const Instance other(p);
      const Results got = run(other);
      RC_ASSERT(bitwise_equal(expected.out(), got.out()));
      RC_ASSERT(bitwise_equal(expected.lse(), got.lse()));
    }
  });
}

TEST_P(PropertiesTest, RowsDoNotDependOnOtherRows) {
  check("a query given alone gives the same to rounding, under " + GetParam(), [] {
    Problem p = some_problem();
    p.mask = {};
    p.bias = {};
    p.allowed = {};
    p.layout = Layout::Dense;
    p.q_len = std::max<Index>(p.q_len, 1);
    const Instance whole(p);
    const Results all = run(whole);
    const Index query = *rc::gen::inRange<Index>(0, p.q_len);
    AttentionInputs inputs = whole.inputs();
    inputs.q = inputs.q.slice(1, query, query + 1);
    Problem one = p;
    one.q_len = 1;
    Results got(one, DType::F32, DType::F32);
    Workspace workspace(serial_executor());
    attention_forward(whole.spec(), inputs, got.outputs(), workspace);
    // Not promised bitwise (strategy may depend on q_len): to rounding.
    for_each_position(got.out().shape, [&](Index b, Index, Index h, Index d) {
      RC_ASSERT(std::abs(element(got.out(), b, 0, h, d) - element(all.out(), b, query, h, d)) <= 5 * sum_tolerance(p));
    });
  });
}

}  // namespace
}  // namespace mha::test
