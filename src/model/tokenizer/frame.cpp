// Reading of the post-processor for single texts; what it says of pairs is not used.
#include "model/tokenizer/frame.h"

#include "core/check.h"
#include "model/tokenizer/vocabulary.h"

namespace mha::model {
namespace {

const Json& list_at(const JsonFields& fields, const std::string& key) {
  const Json& list = fields.at(key);
  if (!list.is_array()) fields.fail(key, core::join("is ", list.type_name(), ", a list was expected"));
  return list;
}

bool is_token(const Json& value) { return value.is_string() && value.get_ref<const std::string&>().size() <= Vocabulary::kMostBytes; }

constexpr std::size_t kMostFrameTokens = 1000;  // a template may name one token often, each time with all its ids

// Appends all ids of the special token that the template calls `name`.
void append_special(const JsonFields& tokens, const std::string& name, Index type, std::vector<FrameToken>& to) {
  const Json* const token = tokens.find(name);
  if (token == nullptr) tokens.fail(printable(name), "is missing");
  const JsonFields fields(*token, tokens.file(), tokens.place() + "." + printable(name));
  const Json& ids = list_at(fields, "ids");
  const Json& texts = list_at(fields, "tokens");
  if (ids.size() != texts.size()) fields.fail("ids", core::join("has ", ids.size(), " entries, tokens has ", texts.size()));
  if (ids.size() > kMostFrameTokens - to.size()) fields.fail("ids", core::join("makes a frame of more than ", kMostFrameTokens, " tokens"));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto id = to_integer(ids[i], 0, Vocabulary::kMostId);
    if (!id || !is_token(texts[i])) fields.fail("ids", core::join("entry ", i, " of ids or tokens is no id or no token"));
    to.push_back({*id, texts[i].get<std::string>(), type});
  }
}

Frame read_template(const JsonFields& fields) {
  Frame frame;
  bool has_text = false;
  const Json& list = list_at(fields, "single");
  for (std::size_t i = 0; i < list.size(); ++i) {
    const JsonFields item(list[i], fields.file(), core::join(fields.place(), ".single[", i, "]"));
    const bool is_text = item.has("Sequence");
    const JsonFields part = item.object(is_text ? "Sequence" : "SpecialToken");
    const Index type = part.integer("type_id", 0, Vocabulary::kMostId);
    if (!is_text) {
      append_special(fields.object("special_tokens"), part.text("id"), type, has_text ? frame.after : frame.before);
      continue;
    }
    if (part.text("id") != "A" || has_text) fields.fail("single", "must hold sequence A once and no other sequence");
    has_text = true;
    frame.text_type = type;
  }
  if (!has_text) fields.fail("single", "must hold sequence A once, it holds none");
  return frame;
}

// ["[SEP]", 102]
FrameToken read_pair(const JsonFields& fields, const std::string& key) {
  const Json& pair = list_at(fields, key);
  const auto id = pair.size() == 2 ? to_integer(pair[1], 0, Vocabulary::kMostId) : std::nullopt;
  if (!id || !is_token(pair[0])) fields.fail(key, "a token and its id were expected");
  return {*id, pair[0].get<std::string>(), 0};
}

}  // namespace

Frame read_frame(const JsonFields& file) {
  if (!file.has("post_processor")) return {};
  const JsonFields fields = file.object("post_processor");
  const std::string type = fields.text("type");
  if (type == "TemplateProcessing") return read_template(fields);
  if (type == "BertProcessing") return {.before = {read_pair(fields, "cls")}, .after = {read_pair(fields, "sep")}, .text_type = 0};
  fields.fail("type", "is " + printable(type) + "; only TemplateProcessing and BertProcessing are supported");
}

}  // namespace mha::model
