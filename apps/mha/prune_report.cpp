// The formats of `mha prune`, all from one report. The picture is drawn by mha/view/curves.h.
#include "prune_report.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "json_numbers.h"
#include "mha/view/curves.h"

namespace mha::app {
namespace {

const RandomPoint* random_at(const PruneReport& report, std::size_t removed) {
  for (const RandomPoint& point : report.random) {
    if (point.removed == removed) return &point;
  }
  return nullptr;
}

/// The effect of the head that goes as the n-th, from 1.
const HeadEffect& effect_of(const PruneReport& report, std::size_t n) { return report.order[n - 1]; }

std::string spread_text(const Spread& spread) { return fmt::format("{:.4f} {:.2f}-{:.2f}", spread.mean, spread.least, spread.most); }

std::string texts_text(const PruneReport& report, const Terminal& terminal) {
  std::string out = wrap(fmt::format("{}: {}; ordered on {} texts, measured on {} others", printable(report.model), report.size,
                                     report.texts_to_order, report.texts_to_measure),
                         terminal.width, 0) +
                    "\n";
  if (report.cut > 0) {
    out += wrap(fmt::format("{} longer than the {} tokens that the model reads: the rest was left out",
                            report.cut == 1 ? "1 text was" : fmt::format("{} texts were", report.cut), report.longest),
                terminal.width, 0) +
           "\n";
  }
  if (report.skipped > 0) out += fmt::format("{} text{} without a word left out\n", report.skipped, report.skipped == 1 ? "" : "s");
  return out;
}

std::string written_text(const PruneReport& report, const Terminal& terminal) {
  const WrittenModel& written = *report.written;
  const PruningPoint& point = report.curve.front();
  const auto mebibytes = [](Index bytes) { return static_cast<double>(bytes) / 1048576.0; };
  std::string out = fmt::format("\n{}\n", bold(fmt::format("written to {}", printable(written.folder)), terminal));
  out += fmt::format("  heads        {} kept, {} removed\n", written.kept, point.removed);
  out += fmt::format("  size         {:.1f} MiB of {:.1f} MiB, {:.1f} % less\n", mebibytes(written.bytes_after),
                     mebibytes(written.bytes_before),
                     100.0 * (1.0 - static_cast<double>(written.bytes_after) / static_cast<double>(written.bytes_before)));
  out += fmt::format("  time         {:.3f} of the whole model's (median of {} pairs, {:.3f} to {:.3f})\n", written.time.mean,
                     written.pairs, written.time.least, written.time.most);
  out += fmt::format("  same result  as the whole model with those heads masked: differs by {:.1e} at most\n", written.difference);
  out += fmt::format("  cosine       {:.4f} to the whole model's sentence vectors\n", point.cosine);
  out += fmt::format("  rank corr.   {:.4f} to its similarities\n\n", point.correlation);
  return out + wrap("The heads that went, the least worth first:", terminal.width, 0) + "\n";
}

Json spread_json(const Spread& spread) { return {{"mean", spread.mean}, {"least", spread.least}, {"most", spread.most}}; }

Json effect_json(const HeadEffect& effect) {
  Json json = head_json(effect.id);
  json["effect"] = effect.vector;
  json["hidden"] = effect.hidden;
  return json;
}

Json written_json(const WrittenModel& written) {
  return {{"folder", written.folder},
          {"kept", written.kept},
          {"bytes_before", written.bytes_before},
          {"bytes_after", written.bytes_after},
          {"difference", written.difference},
          {"time_share", {{"median", written.time.mean}, {"least", written.time.least}, {"most", written.time.most}}},
          {"pairs", written.pairs}};
}

}  // namespace

std::size_t heads_that_can_go(const PruneReport& report) {
  std::size_t most = 0;
  for (const PruningPoint& point : report.curve) {
    if (!(point.correlation >= kSameOrder)) break;
    most = point.removed;
  }
  return most;
}

std::string prune_table(const PruneReport& report, const Terminal& terminal) {
  std::string out = texts_text(report, terminal);
  if (report.written) {
    out += written_text(report, terminal);
    std::vector<std::string> heads;
    for (std::size_t n = 1; n <= report.curve.front().removed; ++n) {
      heads.push_back(fmt::format("{}.{}", effect_of(report, n).id.layer, effect_of(report, n).id.head));
    }
    return out + "  " + wrap_items(heads, " ", terminal.width, 2) + "\n";
  }
  out += wrap(fmt::format("{} of {} heads can go before the rank correlation falls under {}.", heads_that_can_go(report),
                          report.order.size(), kSameOrder),
              terminal.width, 0) +
         "\n\n";
  const std::string chance = report.seeds == 0 ? "" : fmt::format("   random ({}): cosine    rank corr.", report.seeds);
  out += bold(fmt::format("gone    head  effect  cosine  rank corr.{}", chance), terminal) + "\n";
  for (const PruningPoint& point : report.curve) {
    if (point.removed == 0) continue;
    const HeadEffect& effect = effect_of(report, point.removed);
    out += fmt::format("{:>4}  {:>6}  {:.4f}  {:.4f}      {:.4f}", point.removed, fmt::format("{}.{}", effect.id.layer, effect.id.head),
                       effect.vector, point.cosine, point.correlation);
    if (const RandomPoint* random = random_at(report, point.removed)) {
      out += fmt::format("   {}  {}", spread_text(random->cosine), spread_text(random->correlation));
    }
    out += '\n';
  }
  return out;
}

std::string prune_json(const PruneReport& report) {
  Json json = {{"model", report.model},
               {"texts_to_order", report.texts_to_order},
               {"texts_to_measure", report.texts_to_measure},
               {"cut", report.cut},
               {"skipped", report.skipped}};
  json["order"] = Json::array();
  for (const HeadEffect& effect : report.order) json["order"].push_back(effect_json(effect));
  json["curve"] = Json::array();
  for (const PruningPoint& point : report.curve) {
    json["curve"].push_back({{"removed", point.removed}, {"cosine", point.cosine}, {"correlation", point.correlation}});
  }
  if (report.written) {
    json["written"] = written_json(*report.written);
  } else {
    json["can_go"] = {{"heads", heads_that_can_go(report)}, {"least_correlation", kSameOrder}};
    json["random"] = {{"seeds", report.seeds}, {"points", Json::array()}};
    for (const RandomPoint& point : report.random) {
      json["random"]["points"].push_back(
          {{"removed", point.removed}, {"cosine", spread_json(point.cosine)}, {"correlation", spread_json(point.correlation)}});
    }
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string prune_csv(const PruneReport& report) {
  std::string out =
      "removed,layer,head,effect,cosine,correlation,random_cosine_mean,random_cosine_least,random_cosine_most,"
      "random_correlation_mean,random_correlation_least,random_correlation_most\r\n";
  for (const PruningPoint& point : report.curve) {
    std::string head = ",,";
    if (point.removed > 0) {
      const HeadEffect& effect = effect_of(report, point.removed);
      head = fmt::format("{},{},{}", effect.id.layer, effect.id.head, effect.vector);
    }
    std::string chance = ",,,,,";
    if (const RandomPoint* random = random_at(report, point.removed)) {
      const auto cells = [](const Spread& spread) { return fmt::format("{},{},{}", spread.mean, spread.least, spread.most); };
      chance = cells(random->cosine) + "," + cells(random->correlation);
    }
    out += fmt::format("{},{},{},{},{}\r\n", point.removed, head, point.cosine, point.correlation, chance);
  }
  return out;
}

std::string prune_svg(const PruneReport& report) {
  const auto curve_of = [&](const char* name, double PruningPoint::* value, Spread RandomPoint::* chance) {
    CurvePanel panel{.title = name, .curves = {{.name = "least worth first"}}};
    for (const PruningPoint& point : report.curve) {
      panel.curves[0].points.push_back({.x = static_cast<double>(point.removed), .y = point.*value});
    }
    if (report.random.empty()) return panel;
    panel.curves.push_back({.name = fmt::format("{} random orders: mean, range", report.seeds), .points = {}, .aside = true});
    panel.curves[1].points.push_back({.x = 0.0, .y = 1.0, .least = 1.0, .most = 1.0});
    for (const RandomPoint& point : report.random) {
      const Spread& spread = point.*chance;
      panel.curves[1].points.push_back(
          {.x = static_cast<double>(point.removed), .y = spread.mean, .least = spread.least, .most = spread.most});
    }
    return panel;
  };
  CurvePanel order = curve_of("rank correlation of similarities", &PruningPoint::correlation, &RandomPoint::correlation);
  order.rule = kSameOrder;
  return curves_svg({.title = fmt::format("{} without heads", report.model),
                     .description = fmt::format("Heads of {} ordered on {} texts, measured on {} others; {} of {} can go before the rank "
                                                "correlation of similarities falls under {}.",
                                                report.model, report.texts_to_order, report.texts_to_measure, heads_that_can_go(report),
                                                report.order.size(), kSameOrder),
                     .x = "heads removed",
                     .panels = {std::move(order), curve_of("cosine of sentence vectors", &PruningPoint::cosine, &RandomPoint::cosine)}});
}

}  // namespace mha::app
