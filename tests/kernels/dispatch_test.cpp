// Which ISA is in use, how one is forced, and the errors of names that are unknown.
#include <gtest/gtest.h>

#include <cstdlib>

#include "kernels/table.h"
#include "mha/cpu.h"
#include "mha/error.h"
#include "support/errors.h"
#include "support/isa_test.h"

namespace mha {
namespace {

TEST(DispatchTest, ReferenceIsLastAndScalarIsAlwaysThere) {
  ASSERT_GE(isas().size(), 2U);
  EXPECT_EQ(isas().back().name, "reference");
  EXPECT_TRUE(isas().back().supported);
  EXPECT_TRUE(test::isa_is_supported("scalar"));
}

TEST(DispatchTest, TheBestSupportedIsChosenUnlessForced) {
  if (const char* forced = std::getenv("MHA_ISA"); forced != nullptr && *forced != '\0') {
    EXPECT_EQ(current_isa(), forced);
    return;
  }
  for (const Isa& isa : isas()) {
    if (!isa.supported) continue;
    EXPECT_EQ(current_isa(), isa.name);
    return;
  }
}

TEST(DispatchTest, UseIsaSwitches) {
  const std::string before(current_isa());
  for (const Isa& isa : isas()) {
    if (!isa.supported) continue;
    const test::IsaScope scope(isa.name);
    EXPECT_EQ(current_isa(), isa.name);
    if (isa.name == "reference") {
      EXPECT_EQ(kernels::current(), nullptr);
      EXPECT_STREQ(kernels::current_or_scalar().name, "scalar");
    } else {
      ASSERT_NE(kernels::current(), nullptr);
      EXPECT_EQ(kernels::current()->name, isa.name);
      EXPECT_EQ(&kernels::current_or_scalar(), kernels::current());
    }
  }
  EXPECT_EQ(current_isa(), before);
}

TEST(DispatchTest, UnknownNamesAreRefusedAndChangeNothing) {
  const std::string before(current_isa());
  EXPECT_TRUE(test::mentions(test::text_of<Error>([] { use_isa("altivec"); }), "altivec", "scalar"));
  EXPECT_THROW(use_isa(""), Error);
  EXPECT_EQ(current_isa(), before);
}

class TableTest : public test::IsaTest {};
INSTANTIATE_TEST_SUITE_P(Isa, TableTest, testing::ValuesIn(test::kernel_isas()), test::isa_name);

TEST_P(TableTest, IsComplete) {
  const kernels::KernelTable& table = *kernels::current();
  EXPECT_GE(table.lanes, 1);
  EXPECT_LE(table.lanes, kernels::kMaxLanes);
  EXPECT_EQ(table.lanes & (table.lanes - 1), 0) << "lanes are a power of two";
  EXPECT_GE(table.panel_vectors, 1);
  EXPECT_LE(table.panel_vectors, kernels::kMaxPanelVectors);
  for (int storage = 0; storage < kernels::kStorages; ++storage) {
    EXPECT_NE(table.load_rows[storage], nullptr);
    EXPECT_NE(table.store_row[storage], nullptr);
    EXPECT_NE(table.scores_few[storage], nullptr);
    EXPECT_NE(table.accumulate_few[storage], nullptr);
  }
  for (const auto leaf :
       {reinterpret_cast<void*>(table.load_queries), reinterpret_cast<void*>(table.store_rows), reinterpret_cast<void*>(table.scores),
        reinterpret_cast<void*>(table.linear), reinterpret_cast<void*>(table.add_bias), reinterpret_cast<void*>(table.hide_outside),
        reinterpret_cast<void*>(table.hide_bits), reinterpret_cast<void*>(table.row_max), reinterpret_cast<void*>(table.softmax_update),
        reinterpret_cast<void*>(table.exp_minus), reinterpret_cast<void*>(table.accumulate),
        reinterpret_cast<void*>(table.accumulate_visible), reinterpret_cast<void*>(table.rescale), reinterpret_cast<void*>(table.softcap),
        reinterpret_cast<void*>(table.gelu), reinterpret_cast<void*>(table.all_finite)}) {
    EXPECT_NE(leaf, nullptr);
  }
}

}  // namespace
}  // namespace mha
